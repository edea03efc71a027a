"""The client's half of the conversation, its addresses and its patience, without I/O."""

from __future__ import annotations

from itertools import islice
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.runtime.client.address import Address, NotAnAddress
from perdure.runtime.client.backoff import LONGEST, delays
from perdure.runtime.client.conversation import (
    Answered,
    CaughtUp,
    Conversation,
    Ended,
    Events,
    NotUnderstood,
    Refused,
)
from perdure.runtime.kernel.budget import Budget
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.websocket.conversation import Call, Follow, More, Stop
from perdure.runtime.websocket.conversation import Conversation as ServerConversation
from perdure.runtime.websocket.formats import Cbor


def test_what_a_client_says_a_server_understands() -> None:
    """Both halves are of one protocol: calls, follows, credit, stop."""
    client, server = Conversation(), ServerConversation(Cbor(), Budget().account())
    call_id, call = client.call("runs.get", {"run_id": "r"})
    heard = server.receive(server.read(call))
    assert isinstance(heard, Call)
    assert (heard.id, heard.call, heard.args) == (call_id, "runs.get", {"run_id": "r"})
    follow_id, message = client.follow({"channel": "log"}, "place", 7)
    follow = server.receive(server.read(message))
    assert isinstance(follow, Follow)
    assert (follow.id, follow.after, follow.credit) == (follow_id, "place", 7)
    server.subscriptions[follow_id] = None  # type: ignore[assignment]  # as a session would
    assert isinstance(server.receive(server.read(client.credit(follow_id, 3))), More)
    assert isinstance(server.receive(server.read(client.stop(follow_id))), Stop)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), {1, 2}, "\ud800", object()])
def test_an_argument_that_no_server_takes_is_refused_before_it_is_sent(poison: object) -> None:
    """The server would end the connection, and every other call on it would be lost."""
    client = Conversation()
    with pytest.raises(OperationError, match="the arguments cannot be sent") as refusal:
        client.call("runs.create", {"timeout": poison})
    assert refusal.value.code == "VALIDATION_ERROR"


def test_what_a_server_says_a_client_understands() -> None:
    """Answers with their cursors, errors as they were raised, events, live edges, ends."""
    client, server = Conversation(), ServerConversation(Cbor(), Budget().account())
    call_id, _ = client.call("runs.get", {})
    answer = {"run": {"a": b"bytes"}, "cursor": "here"}
    assert client.receive(server.answer(call_id, answer)) == Answered(call_id, answer)
    assert client.receive(server.answer(call_id, answer)) is None, "it was answered"
    call_id, _ = client.call("runs.get", {})
    error = OperationError("INVALID_CURSOR", "no place", reason="foreign")
    refused = client.receive(server.refusal(call_id, error))
    assert isinstance(refused, Refused)
    assert (refused.error.code, refused.error.message) == (error.code, error.message)
    assert refused.error.details == error.details
    follow_id, _ = client.follow({"channel": "log"}, None, 1)
    frame = Cbor().prefix(follow_id) + Cbor().batch([], "next")
    assert client.receive(frame) == Events(follow_id, [], "next")
    assert client.receive(server.live(follow_id, "live")) == CaughtUp(follow_id, "live")
    ended = server.end(follow_id, "terminal", "end")
    assert client.receive(ended) == Ended(follow_id, "terminal", "end")
    assert client.receive(ended) is None


def test_an_error_of_a_newer_server_is_told_with_its_name() -> None:
    """A code that this release does not know is none of its own."""
    client = Conversation()
    call_id, _ = client.call("runs.get", {})
    view = {"code": "NEW_CODE", "message": "m", "details": None}
    refused = client.receive(cbor2.dumps({"id": call_id, "error": view}))
    assert isinstance(refused, Refused)
    assert (refused.error.code, refused.error.message) == ("INTERNAL", "NEW_CODE: m")


def test_what_cannot_be_sent_is_refused_here() -> None:
    """Too large for a message, or no data: nothing is sent, and no id is taken."""
    client = Conversation()
    for args, code in (
        ({"a": "x" * (1 << 20)}, "PAYLOAD_TOO_LARGE"),
        ({"a": object()}, "VALIDATION_ERROR"),
    ):
        with pytest.raises(OperationError) as refused:
            client.call("runs.create", args)
        assert refused.value.code == code
    assert client.call("runs.list", {})[0] == 1


@given(
    st.one_of(
        st.binary(max_size=200),
        st.recursive(st.none() | st.integers() | st.text(), st.lists).map(cbor2.dumps),
    )
)
def test_what_is_no_message_is_told_apart(message: bytes) -> None:
    """Whatever bytes come: nothing else is raised."""
    client = Conversation()
    client.call("runs.get", {})
    with pytest.raises(NotUnderstood):
        client.receive(message)


@pytest.mark.parametrize(
    "message",
    [
        {"id": [1], "ok": {}},
        {"id": {}, "live": "here"},
        {"id": None, "error": {"code": "INTERNAL", "message": "m", "details": {"id": [1]}}},
        {"id": 1, "events": 5, "cursor": "here"},
        {"id": 1, "events": [], "cursor": 5},
    ],
)
def test_a_message_with_parts_of_another_type_is_none(message: dict[str, Any]) -> None:
    """An id that is a list, events that are a number: a server of ours says no such thing."""
    client = Conversation()
    client.call("runs.get", {})
    with pytest.raises(NotUnderstood):
        client.receive(cbor2.dumps(message))


@pytest.mark.parametrize(
    ("url", "host", "port", "target"),
    [
        ("http://127.0.0.1:7373", "127.0.0.1", 7373, "/ws"),
        ("https://example.org/", "example.org", 443, "/ws"),
        ("http://[::1]/perdure/", "::1", 80, "/perdure/ws"),
    ],
)
def test_an_address_is_read(url: str, host: str, port: int, target: str) -> None:
    """With the usual ports, and below a path if a proxy has it there."""
    address = Address.of(url)
    assert (address.host, address.port, address.target) == (host, port, target)


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:7373", "ftp://a", "http://", "http://a:many", "http://u:p@a", "http://a?b"],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    """With the reason, before anything is connected."""
    with pytest.raises(NotAnAddress):
        Address.of(url)


def test_delays_double_with_jitter_up_to_a_bound() -> None:
    """Clients that lost the same server do not come back in step, nor ever more slowly."""
    longest = list(islice(delays(lambda _, most: most), 10))
    shortest = list(islice(delays(lambda least, _: least), 10))
    assert longest[:3] == [0.05, 0.1, 0.2]
    assert longest[-1] == LONGEST
    assert shortest == [each / 2 for each in longest]
