"""The conversation against its document, and against whatever strangers send."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError
from perdure.runtime.kernel.budget import Budget
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.websocket.asyncapi import FROM_CLIENTS, FROM_SERVER, document
from perdure.runtime.websocket.conversation import (
    Call,
    Conversation,
    ConversationLimits,
    Follow,
    ImmediateReply,
)
from perdure.runtime.websocket.formats import FORMATS
from perdure.runtime.websocket.frames import BadPeer, FrameLimits, FrameMeter
from perdure.runtime.websocket.socket_subscription import SocketSubscription
from tests.features import TRIED
from tests.fuzz import examples
from tests.runtime.service import service
from tests.runtime.websocket.harness import Client, serving
from tests.runtime.websocket.raw_peer import masked

DOCUMENT = document(TRIED.operations.values(), TRIED, "v1")
JSON, CBOR = FORMATS["perdure.v1+json"], FORMATS["perdure.v1+cbor"]
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "id": JSON_VALUES | st.integers(0, 9),
        "call": JSON_VALUES | st.sampled_from(sorted(TRIED.operations)),
        "args": JSON_VALUES,
        "follow": JSON_VALUES | st.just({"channel": "runs"}),
        "after": JSON_VALUES,
        "credit": JSON_VALUES | st.integers(-2, 10),
        "stop": st.booleans(),
    },
)


def _encoded(value: Any) -> bytes:
    try:
        return cbor.encode(value)
    except CodecError:
        return b"\xff"


def validator(kinds: tuple[type, ...]) -> Any:
    """Give what checks a message that one side may send."""
    refs = [DOCUMENT["components"]["messages"][kind.__name__]["payload"] for kind in kinds]
    schema = {"anyOf": refs, "components": DOCUMENT["components"]}
    return jsonschema_rs.validator_for(schema)


CLIENT, SERVER = validator(FROM_CLIENTS), validator(FROM_SERVER)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("{}", "call, follow, stop, credit"),
        ('{"id": 1}', "call, follow, stop, credit"),
        ('{"id": 1, "credit": 0}', "this is no credit"),
        ('"\\ud800"', "no Unicode text"),
        ('{"id": 1, "call": "\\ud800x"}', "no Unicode text"),
        ('"\\\\ud800', "truncated"),
    ],
)
def test_a_refusal_says_what_may_be_said(message: str, told: str) -> None:
    """And not what one of the messages would have lacked."""
    conversation = Conversation(JSON, Budget().account())
    reply = conversation.receive(conversation.read(message))
    assert isinstance(reply, ImmediateReply)
    assert told in msgspec.json.decode(reply.message)["error"]["message"]


async def test_an_envelope_has_no_cursor(autojump_clock: MockClock) -> None:
    """It is what callers had before there were runs; there is no null for what is not there."""
    async with service() as s, serving(s) as server, server.connect() as client:
        answer = await client.call("plugins.trigger", plugin_id="test", entry_id="greet")
        SERVER.validate(answer)
        assert answer.keys() == {"id", "ok"}
        assert (await client.call("runs.list"))["cursor"]


async def test_calls_have_moments_as_addresses_have_them(autojump_clock: MockClock) -> None:
    """Epoch seconds or ISO 8601, in both formats."""
    async with service() as s, serving(s) as server:
        created = (await s.start("greet"))["updated_at"]
        for name in FORMATS:
            async with server.connect(name) as client:
                for at, count in [
                    (int(created) + 1, 1),
                    (created, 1),
                    ("2100-01-01", 1),
                    (created - 0.5, 0),
                    ("2020-01-01T00:00:00Z", 0),
                ]:
                    answer = await client.call("runs.list", at=at)
                    assert len(answer["ok"]["runs"]) == count, at


async def test_what_is_said_is_what_the_document_says(autojump_clock: MockClock) -> None:
    """Every message of a conversation with everything in it, both ways."""
    said: list[Any] = []

    class Recorded(Client):
        async def send(self, message: Any) -> None:
            CLIENT.validate(message)
            await super().send(message)

        async def receive(self) -> Any:
            message = await super().receive()
            SERVER.validate(message)
            said.append(message)
            return message

    async with service() as s, serving(s) as server, server.connect() as plain:
        client = Recorded(plain.connection, "perdure.v1+json")
        for name in ("runs.list", "plugins.list", "nothing"):
            answer = await client.call(name)
            if "ok" in answer:
                described = DOCUMENT["x-calls"][name]["answer"]
                schema = {**described, "components": DOCUMENT["components"]}
                whole = answer["ok"] | {"cursor": answer["cursor"]}
                jsonschema_rs.validator_for(schema).validate(whole)
        run_id = (await s.start("exports"))["run_id"]
        await s.finished(run_id)
        of_runs = [
            each for each in TRIED.channels.values() if "run_id" in each.filters.__struct_fields__
        ]
        assert len(of_runs) >= 4
        for channel in (each.name for each in of_runs):
            event = {**DOCUMENT["x-channels"][channel], "components": DOCUMENT["components"]}
            check = jsonschema_rs.validator_for(event)
            await client.send({"id": channel, "follow": {"channel": channel, "run_id": run_id}})
            for message in await client.until("end"):
                for shown in message.get("events", ()):
                    check.validate(shown)
        await client.send({"id": 1, "follow": {"channel": "log"}, "credit": 5})
        await client.receive()
        await client.send({"id": 1, "credit": 500})
        await client.until("live")
        await client.send({"id": 1, "stop": True})
        await client.until("end")
    kinds = {frozenset(message) - {"id", "cursor"} for message in said}
    assert kinds == {frozenset({key}) for key in ("ok", "error", "events", "live", "end")}


@given(MESSAGES | JSON_VALUES)
@examples()
def test_any_json_is_understood_or_refused(message: Any) -> None:
    """What is accepted is what the document allows; all else gets an error with a code."""
    conversation = Conversation(JSON, Budget().account())
    try:
        text = msgspec.json.encode(message).decode()
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError):
        return
    answer = conversation.receive(conversation.read(text))
    if isinstance(answer, ImmediateReply):
        told = msgspec.json.decode(answer.message)
        SERVER.validate(told)
        assert told["error"]["code"] == "VALIDATION_ERROR"
    elif answer is not None:
        CLIENT.validate(msgspec.json.decode(text))


@given(st.binary(max_size=200) | MESSAGES.map(_encoded))
@examples()
def test_any_bytes_are_understood_or_refused(data: bytes) -> None:
    """Bombs, rubbish, half a value: an error, and the conversation goes on."""
    conversation = Conversation(CBOR, Budget().account())
    for _ in range(2):
        answer = conversation.receive(conversation.read(data))
        if isinstance(answer, ImmediateReply):
            assert "error" in cbor.decode_strict(answer.message)
    assert isinstance(
        conversation.receive(conversation.read(_encoded({"id": "mine", "call": "x"}))), Call
    )


@given(st.lists(st.tuples(st.sampled_from("cfae"), st.integers(0, 5)), max_size=60))
@settings(max_examples=300, deadline=None)
def test_ids_and_limits_are_kept(steps: list[tuple[str, int]]) -> None:
    """An id stands for one thing at a time, and so many are open and no more."""
    conversation = Conversation(JSON, Budget().account(), ConversationLimits(calls=3, follows=2))
    calls: set[int] = set()
    follows: set[int] = set()
    for step, number in steps:
        if step == "c":
            got = conversation.receive(conversation.read(f'{{"id":{number},"call":"runs.list"}}'))
            free = number not in calls | follows and len(calls) < 3
            assert isinstance(got, Call) == free
            if free:
                calls.add(number)
        elif step == "f":
            got = conversation.receive(
                conversation.read(f'{{"id":{number},"follow":{{"channel":"log"}}}}')
            )
            free = number not in calls | follows and len(follows) < 2
            assert isinstance(got, Follow) == free
            if free:
                conversation.subscriptions[number] = Mock(SocketSubscription)
                follows.add(number)
        elif step == "a" and number in calls:
            with conversation.answering(number):
                conversation.answer(number, {"cursor": "c"})
            calls.discard(number)
        elif step == "e" and number in follows:
            conversation.refusal(number, OperationError("INTERNAL", "m"))
            follows.discard(number)


@pytest.mark.parametrize("format_", [JSON, CBOR])
def test_calls_are_counted_by_what_they_take_here(format_: Any) -> None:
    """Many small values are much memory: who has too many open waits until some are answered."""
    budget = Budget(8 << 20)
    conversation = Conversation(format_, budget.account())

    def begin(number: int) -> Any:
        message = format_.encode({"id": number, "call": "x", "args": {"x": [[]] * 5000}})
        said = message.decode() if format_ is JSON else message
        return conversation.receive(conversation.read(said))

    begun = [begin(number) for number in range(10)]
    taken = sum(isinstance(each, Call) for each in begun)
    assert 3 < taken < 10
    assert b"OVERLOADED" in begun[taken].message
    assert taken * 5000 * 56 < budget.held <= budget.share
    with conversation.answering(0):
        conversation.answer(0, {})
    assert isinstance(begin(11), Call)


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 2, 8, 9, 10]), st.integers(0, 70_000), st.booleans()),
        max_size=30,
    ),
    st.integers(1, 5000),
)
@examples()
def test_the_meter_counts_frames_however_they_are_cut(
    frames: list[tuple[int, int, bool]], cut: int
) -> None:
    """Whole or in pieces: the same frames are let through, and the same are not."""
    data = b"".join(masked(op, bytes(size), fin=fin) for op, size, fin in frames)
    outcomes = []
    for step in (len(data) or 1, cut, 1 if len(data) < 5000 else 4999):
        meter = FrameMeter(FrameLimits(message_bytes=100_000, fragments=5, rate=1e9), 0.0)
        try:
            for place in range(0, len(data), step):
                meter.count(data[place : place + step], 0.0)
            outcomes.append(0)
        except BadPeer as bad:
            outcomes.append(bad.code)
    assert len(set(outcomes)) == 1


@pytest.mark.parametrize("format_", FORMATS.values(), ids=FORMATS)
@given(st.lists(JSON_VALUES, max_size=5), st.integers(0, 1 << 53) | TEXT)
@settings(max_examples=100, deadline=None)
def test_a_prefix_and_a_batch_are_one_message(
    format_: Any, events: list[Any], follow_id: str | int
) -> None:
    """Put together from two pieces, read as one object."""

    class Event:
        def __init__(self, value: Any) -> None:
            self.json = msgspec.json.encode(value)
            self.cbor = cbor.encode(value)

    try:
        shown = [Event(value) for value in events]
        prefix = format_.prefix(follow_id)
    except (CodecError, UnicodeEncodeError, msgspec.MsgspecError):
        return
    message = prefix + format_.batch(shown, "cursor")
    read = format_.decode(message.decode() if format_.name == "json" else message).value
    assert read.keys() == {"id", "events", "cursor"}
    assert read["id"] == follow_id
    assert len(read["events"]) == len(events)
