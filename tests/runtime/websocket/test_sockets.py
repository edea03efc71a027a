"""Perdure over WebSocket: calls, follows, credit, ends, and peers that misbehave."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest
import trio
from trio.testing import MockClock
from trio_websocket import ConnectionClosed

from perdure.runtime.kernel.decoding import LARGE
from perdure.runtime.websocket.conversation import ConversationLimits
from perdure.runtime.websocket.sockets import SocketLimits
from tests.runtime.service import service
from tests.runtime.websocket.harness import serving, socket_pair

FORMATS = ["perdure.v1+json", "perdure.v1+cbor"]
both = pytest.mark.parametrize("format_", FORMATS)


@both
async def test_operations_are_called_and_answered(format_: str, autojump_clock: MockClock) -> None:
    """Each answer has the id of its call, what was asked for, and the cursor of its truth."""
    async with service() as s, serving(s) as server, server.connect(format_) as client:
        created = await client.call("runs.create", plugin_id="test", entry_id="greet", args={})
        run_id = created["ok"]["run"]["run_id"]
        assert created["ok"]["run"]["status"] == "queued"
        await s.finished(run_id)
        then = await client.call("runs.get", run_id=run_id, at=created["cursor"])
        now = await client.call("runs.get", run_id=run_id)
        assert then["ok"]["run"]["status"] == "queued"
        assert now["ok"]["run"]["status"] == "succeeded"
        refused = await client.call("runs.get", run_id="nobody")
        assert refused["error"]["code"] == "RUN_NOT_FOUND"
        assert (await client.call("log.follow", channel="runs"))["error"]["code"] == (
            "VALIDATION_ERROR"
        )
        wrong = await client.call("runs.create", plugin_id="test", entry_id="nap")
        assert wrong["error"]["details"] == {
            "errors": [{"path": "args.seconds", "expected": "a value", "got": "nothing"}]
        }
        await client.send({"id": "x", "call": 5})
        told = (await client.receive())["error"]["details"]
        wanted = [{"path": "call", "expected": "str", "got": "int"}]
        assert told == {"id": "x", "errors": wanted}


@both
async def test_calls_do_not_wait_for_each_other(format_: str, autojump_clock: MockClock) -> None:
    """Reading never stops while a handler works."""
    async with service() as s, serving(s) as server, server.connect(format_) as client:
        run = {"plugin_id": "test", "entry_id": "nap", "args": {"seconds": 5}, "mode": "sync"}
        await client.send({"id": "slow", "call": "runs.create", "args": run})
        await client.send({"id": "quick", "call": "runs.list"})
        assert (await client.receive())["id"] == "quick"
        slow = await client.receive()
        assert slow["ok"]["run"]["status"] == "succeeded"


@both
async def test_a_follow_lists_what_is_there_then_what_happens(
    format_: str, autojump_clock: MockClock
) -> None:
    """Additions at one cursor, ``live``, then changes; all with cursors to come back with."""
    async with service() as s, serving(s) as server, server.connect(format_) as client:
        napping = (await s.start("nap", args={"seconds": 100}))["run_id"]
        await trio.sleep(1)
        await client.send({"id": 1, "follow": {"channel": "runs"}})
        *listed, live = await client.until("live")
        assert [e["run_id"] for m in listed for e in m["events"]] == [napping]
        assert live == {"id": 1, "live": listed[-1]["cursor"]}
        run_id = (await s.start("greet"))["run_id"]
        changes: list[tuple[str, str]] = []
        message = live
        while not changes or changes[-1][1] != "succeeded":
            message = await client.receive()
            changes += [(event["run_id"], event["status"]) for event in message["events"]]
        assert changes == [(run_id, "queued"), (run_id, "running"), (run_id, "succeeded")]
        await client.send({"id": 1, "stop": True})
        end = await client.receive()
        assert end == {"id": 1, "end": "stopped", "cursor": message["cursor"]}
        await s.start("greet")
        again = {"id": 1, "follow": {"channel": "runs"}, "after": end["cursor"]}
        await client.send(again)
        assert (await client.receive())["events"][0]["op"] == "add"


@both
async def test_following_one_run_ends_with_it(format_: str, autojump_clock: MockClock) -> None:
    """Live, and for whoever comes when it is over."""
    async with service() as s, serving(s) as server, server.connect(format_) as client:
        run_id = (await s.start("nap", args={"seconds": 3}))["run_id"]
        last = None
        for number in range(2):
            await client.send({"id": number, "follow": {"channel": "run", "run_id": run_id}})
            *_, end = await client.until("end")
            assert end["end"] == "terminal"
            last = end["cursor"]
        await client.send({"id": 9, "follow": {"channel": "run", "run_id": run_id}, "after": last})
        assert await client.receive() == {"id": 9, "end": "terminal", "cursor": last}


async def test_credit_counts_events(autojump_clock: MockClock) -> None:
    """So many and no more, while it catches up and while it is live; nothing is lost by it."""
    async with service() as s, serving(s) as server, server.connect() as client:
        for _ in range(4):
            await s.finished((await s.start("greet"))["run_id"])
        start = s.node.log.cursor(await s.node.log.resolve(await s.cursor()))
        await client.send({"id": 1, "follow": {"channel": "log"}, "credit": 5})
        seen: list[int] = []
        with trio.move_on_after(100):
            while True:
                seen += [e["position"] for e in (await client.receive()).get("events", [])]
        assert seen == [1, 2, 3, 4, 5]
        await client.send({"id": 1, "credit": 3})
        with trio.move_on_after(100):
            while True:
                seen += [e["position"] for e in (await client.receive()).get("events", [])]
        assert seen == list(range(1, 9))
        await client.send({"id": 1, "credit": 1000})
        await client.until("live")
        await client.send({"id": 2, "follow": {"channel": "log"}, "after": start, "credit": 2})
        await client.until("live")
        await s.finished((await s.start("greet"))["run_id"])
        got: dict[int, list[int]] = {1: [], 2: []}
        with trio.move_on_after(100):
            while True:
                message = await client.receive()
                got[message["id"]] += [e["position"] for e in message.get("events", [])]
        assert len(got[2]) == 2
        await client.send({"id": 2, "credit": 100})
        with trio.move_on_after(100):
            while True:
                message = await client.receive()
                got[message["id"]] += [e["position"] for e in message.get("events", [])]
        assert got[2] == got[1]


@pytest.mark.parametrize(
    "message",
    [
        5,
        [],
        {},
        {"id": 1},
        {"id": True, "call": "runs.list"},
        {"id": 1.5, "call": "runs.list"},
        {"id": -1, "call": "runs.list"},
        {"id": "", "call": "runs.list"},
        {"id": "x" * 65, "call": "runs.list"},
        {"id": 1, "call": 5},
        {"id": 1, "call": "runs.list", "args": []},
        {"id": 1, "call": "runs.list", "more": 1},
        {"id": 1, "follow": "runs"},
        {"id": 1, "follow": {"channel": "runs"}, "credit": 0},
        {"id": 1, "stop": False},
    ],
)
async def test_what_makes_no_sense_is_told(message: object, autojump_clock: MockClock) -> None:
    """The connection goes on, and the id of the message is a detail."""
    async with service() as s, serving(s) as server, server.connect() as client:
        await client.send(message)
        answer = await client.receive()
        assert answer["id"] is None
        assert answer["error"]["code"] == "VALIDATION_ERROR"
        assert (await client.call("runs.list"))["ok"]["runs"] == []


async def test_bad_follows_and_ids_in_use_are_refused(autojump_clock: MockClock) -> None:
    """An id is free again when what it named has ended; credit for what has ended is passed by."""
    async with service() as s, serving(s) as server, server.connect() as client:
        for follow, code in (
            ({"channel": "nothing"}, "VALIDATION_ERROR"),
            ({"channel": "runs", "run_id": "nobody"}, "RUN_NOT_FOUND"),
            ({"channel": "runs", "after": "rubbish"}, "INVALID_CURSOR"),
        ):
            await client.send({"id": 1, "follow": follow})
            answer = await client.receive()
            assert (answer["id"], answer["error"]["code"]) == (1, code)
        await client.send({"id": 1, "credit": 5})
        await client.send({"id": 1, "stop": True})
        await client.send({"id": 1, "follow": {"channel": "log"}})
        await client.until("live")
        await client.send({"id": 1, "call": "runs.list"})
        answer = await client.receive()
        assert answer["id"] is None
        assert answer["error"]["details"] == {"id": 1}


@pytest.mark.parametrize("real", [False, True])
async def test_many_followers_see_the_same(real: bool) -> None:
    """Live ones are served together; each sees every event once, in order (R36, R42)."""
    seen: dict[int, list[tuple[str, str]]] = {number: [] for number in range(20)}
    ready = [trio.Event() for _ in seen]
    async with service() as s, serving(s) as server:

        async def follow(number: int) -> None:
            pair = socket_pair() if real else None
            format_ = FORMATS[number % 2]
            async with server.connect(format_, streams=pair) as client:
                await client.send({"id": number, "follow": {"channel": "runs"}})
                await client.until("live")
                ready[number].set()
                while sum(status == "succeeded" for _, status in seen[number]) < 30:
                    message = await client.receive()
                    events = message.get("events", ())
                    seen[number] += [(e["run_id"], e["status"]) for e in events]

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for number in seen:
                    nursery.start_soon(follow, number)
                for event in ready:
                    await event.wait()
                for _ in range(30):
                    await s.start("greet")
        assert all(events == seen[0] for events in seen.values())
        assert len(set(seen[0])) == len(seen[0]) == 90


@both
async def test_reports_are_thinned_and_results_never(
    format_: str, autojump_clock: MockClock
) -> None:
    """By run, the last progress comes and every status and export does (R42, R56, R112)."""
    async with service() as s, serving(s) as server, server.connect(format_) as client:
        args = {"n": 2000, "export_every": 50}
        noisy = (await s.start("spam", args=args))["run_id"]
        await s.start("spam", args={"n": 2000})
        await client.send({"id": 1, "follow": {"channel": "run", "run_id": noisy}})
        messages = await client.until("end")
        shown = [event for message in messages for event in message.get("events", ())]
        changes = [event["run"] for event in shown if "run" in event]
        assert {change["run_id"] for change in changes} == {noisy}
        statuses = [status for status, _ in groupby(change["status"] for change in changes)]
        assert statuses == ["queued", "running", "succeeded"]
        reports = [change for change in changes if "message" in change]
        times = [change["updated_at"] for change in reports[:-1]]  # the last comes with the end
        assert 15 <= len(times) <= (times[-1] - times[0]) / 0.1 + 1
        assert all(later - earlier > 0.1 - 1e-6 for earlier, later in pairwise(times))
        assert (reports[-1]["message"], reports[-1]["status"]) == ("1999", "succeeded")
        items = [event["export"] for event in shown if "export" in event]
        assert {item["run_id"] for item in items} == {noisy}
        assert [item["text"] for item in items] == [f"item {n}" for n in range(0, 2000, 50)]


async def test_followers_are_told_when_the_server_drains(autojump_clock: MockClock) -> None:
    """They get the cursor to come back with, and a code that says so."""
    async with service() as s, serving(s) as server, server.connect() as client:
        await client.send({"id": 1, "follow": {"channel": "log"}})
        await client.until("live")
        server.sockets.drain()
        assert (await client.receive())["end"] == "draining"
        with pytest.raises(ConnectionClosed) as closed:
            await client.receive()
        assert closed.value.reason is not None
        assert closed.value.reason.code == 1012


async def test_a_limit_holds_for_what_is_live_too(autojump_clock: MockClock) -> None:
    """No message has more events than were asked for, and none is left out."""
    async with (
        service() as s,
        serving(s) as server,
        server.connect(streams=socket_pair()) as client,
    ):
        await client.send({"id": 1, "follow": {"channel": "log", "limit": 2}})
        await client.until("live")
        await s.finished((await s.start("exports"))["run_id"])
        last = (await s.node.log.head()).position
        seen: list[int] = []
        while last not in seen:
            positions = [event["position"] for event in (await client.receive())["events"]]
            assert len(positions) <= 2
            seen += positions
        assert seen == list(range(1, last + 1))


async def test_whoever_waits_for_runs_can_read_meanwhile(autojump_clock: MockClock) -> None:
    """A wait holds none of the places of reads; it ends with its run, or with the connection."""
    limits = SocketLimits(conversation=ConversationLimits(reads=2))
    async with service() as s, serving(s, limits) as server:
        run_id = (await s.start("nap", args={"seconds": 10}))["run_id"]
        wait = {"call": "runs.wait", "args": {"run_id": run_id}}
        async with server.connect() as client:
            for number in range(10):
                await client.send({"id": number, **wait})
            await client.send({"id": "read", "call": "runs.list"})
            assert (await client.receive())["id"] == "read"
            await s.finished(run_id)
            answers = [await client.receive() for _ in range(10)]
            assert {each["ok"]["run"]["status"] for each in answers} == {"succeeded"}


@both
async def test_a_large_message_is_decoded_beside_the_event_loop(
    format_: str, autojump_clock: MockClock, decoded_apart: list[object]
) -> None:
    """Others are served meanwhile; what was said next is done next."""
    async with service() as s, serving(s) as server, server.connect(format_) as client:
        for size, apart in ((1, 0), (LARGE, 1)):
            await client.send({"id": size, "call": "x" * size})
            await client.send({"id": "next", "call": "runs.list"})
            assert [(await client.receive())["id"] for _ in range(2)] == [size, "next"]
            assert len(decoded_apart) == apart
