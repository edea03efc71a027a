"""Channels as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from starlette.applications import Starlette
from trio.testing import MockClock

from perdure.eventlog import MemoryStore
from perdure.eventlog.cursor import format_cursor
from perdure.eventlog.follow import HEARTBEAT
from perdure.runtime.http.app import create_app
from perdure.runtime.http.event_routes import event_routes
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.kernel.settings import Settings
from perdure.runtime.runs.requests import CancelRun
from tests.runtime.http.client import Client, error_of
from tests.runtime.http.sse import PATIENCE, Event, following
from tests.runtime.service import Service, service

Served = tuple[Service, Starlette]


@asynccontextmanager
async def served(store: MemoryStore | None = None, **more: Any) -> AsyncIterator[Served]:
    """Serve a node, with its events."""
    async with service(store, **more) as s:
        yield s, create_app(s.node, Settings(), event_routes(s.node.features))


def told(seen: list[Event]) -> list[Any]:
    """What events say."""
    return [event.data for event in seen]


# Channels


async def test_changes_of_runs_are_events(autojump_clock: MockClock) -> None:
    """Each has its cursor as its id; a follower sees a run from beginning to end (R35, R36)."""
    async with served() as (s, app):
        begin = await s.cursor()
        async with following(app, f"/events/runs?after={begin}") as stream:
            run_id = (await s.start("greet"))["run_id"]
            seen = await stream.until("run", 3)
        assert stream.status == 200
        assert stream.headers[b"content-type"] == b"text/event-stream"
        assert stream.headers[b"cache-control"] == b"no-store"
        assert [(event["op"], event["status"]) for event in told(seen)] == [
            ("add", "queued"),
            ("change", "running"),
            ("change", "succeeded"),
        ]
        assert {event["run_id"] for event in told(seen)} == {run_id}
        assert len({event.last_id for event in seen}) == 3


async def test_without_a_cursor_the_runs_that_have_not_ended_come_first(
    autojump_clock: MockClock,
) -> None:
    """Then what follows; only the last of the list has an id."""
    async with served() as (s, app):
        await s.finished((await s.start("greet"))["run_id"])
        for _ in range(3):
            await s.start("nap", args={"seconds": 50})
        await trio.sleep(1)
        async with following(app, "/events/runs") as stream:
            seen = await stream.until("run", 3)
            await s.start("greet")
            seen = await stream.until("run", 4)
        assert [event["op"] for event in told(seen)] == ["add"] * 4
        assert [bool(event.last_id) for event in seen] == [False, False, True, True]


async def test_exports_are_events(autojump_clock: MockClock) -> None:
    """From the log's beginning, unless a cursor is given; no item needs to have been seen (R31)."""
    async with served() as (s, app):
        run_id = (await s.start("exports"))["run_id"]
        await s.finished(run_id)
        kept = (await s.call("runs.export", {"run_id": run_id}))["items"]
        async with following(app, "/events/export") as stream:
            assert told(await stream.until("export", len(kept))) == kept
        async with following(app, f"/events/export?after={stream.events[1].last_id}") as later:
            assert told(await later.until("export", len(kept) - 2)) == kept[2:]


async def test_the_log_itself_is_events(autojump_clock: MockClock) -> None:
    """Every record, in order."""
    async with served() as (s, app):
        await s.finished((await s.start("steps"))["run_id"])
        head = (await s.node.log.head()).position
        async with following(app, "/events/log") as stream:
            records = told(await stream.until("record", head))
        assert [record["position"] for record in records] == list(range(1, head + 1))


async def test_filters_are_in_the_address(autojump_clock: MockClock) -> None:
    """So that they are still there when a browser comes back (R38, R39, R40, R41)."""
    async with served() as (s, app):
        begin = await s.cursor()
        mine = (await s.start("greet", task_id="t1"))["run_id"]
        other = (await s.start("fail", task_id="t2"))["run_id"]
        for run_id in (mine, other):
            await s.finished(run_id)

        async def seen(query: str, count: int) -> list[tuple[str, str]]:
            async with following(app, f"/events/runs?after={begin}&{query}") as stream:
                found = await stream.until("run", count)
                await trio.sleep(1)
                assert len(stream.events) - stream.over.is_set() == count
            return [(event["run_id"], event["status"]) for event in told(found)]

        life = [(mine, "queued"), (mine, "running"), (mine, "succeeded")]
        assert await seen(f"run_id={mine}", 3) == life
        assert await seen("task_id=t1", 3) == life
        assert await seen("entry_id=greet", 3) == life
        assert len(await seen("plugin_id=test", 6)) == 6
        assert await seen("status=failed,timeout", 1) == [(other, "failed")]
        assert await seen("status=failed&status=queued&task_id=t1", 1) == life[:1]


# One run


async def test_one_run_is_a_stream_that_ends_with_it(autojump_clock: MockClock) -> None:
    """Changes and exports in one order, then `end`, then nothing (R35)."""
    async with served() as (s, app):
        run_id = (await s.start("steps"))["run_id"]
        async with following(app, f"/runs/{run_id}/events") as stream:
            await stream.over.wait()
        kinds = [event.kind for event in stream.events]
        assert kinds[-2:] == ["run", "end"]
        assert stream.events[-2].data["run"]["status"] == "succeeded"
        assert kinds.count("export") == (await s.read(run_id))["result_refs"].__len__() + 3
        record = await s.read(run_id, at=stream.events[-1].last_id)
        assert record["status"] == "succeeded"


async def test_who_comes_back_after_the_end_is_told_to_stay_away(
    autojump_clock: MockClock,
) -> None:
    """With the id of the end, or of the last event: 204, which is how EventSource stops."""
    async with served() as (s, app):
        run_id = (await s.start("greet"))["run_id"]
        async with following(app, f"/runs/{run_id}/events") as stream:
            await stream.over.wait()
        last, end = stream.events[-2:]
        assert last.last_id == end.last_id
        for path in (f"/runs/{run_id}/events", f"/events/runs?run_id={run_id}"):
            async with following(app, path, end.last_id) as again:
                await again.over.wait()
            assert (again.status, again.bytes) == (204, 0)
        async with following(app, f"/runs/{run_id}/events?after={end.last_id}") as fresh:
            await fresh.over.wait()  # who begins with this cursor is told, once
        assert [event.kind for event in fresh.events] == ["end"]
        earlier = stream.events[0].last_id
        async with following(app, f"/runs/{run_id}/events", earlier) as rest:
            await rest.over.wait()
        assert rest.events == stream.events[1:]


# Coming back


async def test_who_comes_back_misses_nothing_and_gets_nothing_twice(
    autojump_clock: MockClock,
) -> None:
    """The header is the same cursor as `after`, and wins; also after a crash (R44, R117)."""
    store = MemoryStore()
    seen: list[Event] = []
    last, begin = None, ""
    for life in range(4):
        async with served(store) as (s, app):
            begin = last or await s.cursor()
            async with following(app, f"/events/export?after={begin}", last) as stream:
                for _ in range(3):
                    await s.start("exports", task_id=f"{life}")
                await stream.until("export", 5 + life)
            seen += stream.events
            last = stream.parser.last_id
    async with served(store) as (s, app):
        async with following(app, f"/events/export?after={begin}", last) as stream:
            await trio.sleep(5)
        seen += stream.events
        async with following(app, "/events/export") as whole:
            await trio.sleep(5)
    assert told(seen) == told(whole.events)
    assert len(seen) == 4 * 3 * 4


@pytest.mark.parametrize("given", ["header", "query"])
async def test_a_bad_cursor_is_refused_before_the_stream_begins(
    autojump_clock: MockClock, given: str
) -> None:
    """As JSON with INVALID_CURSOR: nothing begins anew in silence (R86)."""
    async with served() as (s, app), Client(s, app).http as http:
        await s.finished((await s.start("greet"))["run_id"])
        restored = format_cursor("f" * 16, await s.node.log.head())  # right in another generation
        for bad in ("nonsense", "x" * 28, "é", restored):
            for path in ("/events/runs", "/events/log"):
                with trio.fail_after(PATIENCE):  # a stream that begins has no end
                    response = await http.get(
                        path,
                        params={"after": bad} if given == "query" else {},
                        headers={b"last-event-id": bad.encode()} if given == "header" else {},
                    )
                assert error_of(response, 400)["code"] == "INVALID_CURSOR"


async def test_what_makes_no_sense_is_refused(autojump_clock: MockClock) -> None:
    """An unknown run, filter or status is an error in JSON, before anything is streamed."""
    async with served() as (s, app), Client(s, app).http as http:
        assert error_of(await http.get("/runs/x/events"), 404)["code"] == "RUN_NOT_FOUND"
        assert error_of(await http.get("/events/runs?run_id=x"), 404)["code"] == "RUN_NOT_FOUND"
        for query in ("status=odd", "colour=red", "after=a&after=b"):
            response = await http.get(f"/events/runs?{query}")
            assert error_of(response, 422)["code"] == "VALIDATION_ERROR"
        assert (await http.head("/events/runs")).status_code == 200


# Silence


async def test_silence_is_broken_by_comments(autojump_clock: MockClock) -> None:
    """Every quarter of a minute, even when nothing moves."""
    async with served() as (_, app), following(app, "/events/runs") as stream:
        await trio.sleep(HEARTBEAT * 4.5)
        assert stream.parser.comments == 4
        assert stream.events == []


async def test_a_follower_of_something_rare_keeps_its_place(autojump_clock: MockClock) -> None:
    """What does not concern it moves its id, and it comes back near the head of the log."""
    async with served() as (s, app):
        async with following(app, "/events/export?task_id=rare") as stream:
            for _ in range(5):
                await trio.sleep(HEARTBEAT)
                await s.finished((await s.start("exports"))["run_id"])
            await trio.sleep(HEARTBEAT * 2)
        assert stream.events == []
        place = await s.node.log.resolve(stream.parser.last_id)
        assert place == await s.node.log.head()


# Going


async def test_a_disconnect_ends_the_stream_and_nothing_else(autojump_clock: MockClock) -> None:
    """The run that was followed goes on (R61)."""
    async with served() as (s, app):
        run_id = (await s.start("nap", args={"seconds": 5}))["run_id"]
        async with following(app, f"/runs/{run_id}/events") as stream:
            await stream.until("run")
            assert s.node.channels.followers["sse"] == 1
        assert s.node.channels.followers["sse"] == 0
        assert (await s.finished(run_id))["status"] == "succeeded"


async def test_a_slow_reader_slows_nobody(autojump_clock: MockClock) -> None:
    """It holds one delivery; when it reads on, it is given all of it, in order (R117)."""
    async with served() as (s, app):
        begin = await s.cursor()
        address = f"/events/export?after={begin}"
        async with following(app, address) as slow, following(app, address) as fast:
            slow.paused = True
            for _ in range(50):
                await s.start("exports")
            started = trio.current_time()
            await fast.until("export", 200)
            assert trio.current_time() - started < 5
            assert slow.events == []
            slow.paused = False
            await slow.until("export", 200)
        assert told(slow.events) == told(fast.events)


async def test_a_slow_reader_is_given_the_last_progress_and_every_status(
    autojump_clock: MockClock,
) -> None:
    """Reports come with the next change for one that lags behind; no status does (R43, R117)."""
    async with served() as (s, app):
        begin = await s.cursor()
        async with following(app, f"/events/runs?after={begin}") as slow:
            slow.paused = True
            run_id = (await s.start("stages"))["run_id"]
            await s.finished(run_id)
            slow.paused = False
            await slow.until("run", 3)
            await trio.sleep(1)
        seen = told(slow.events)
        assert [(event["status"], event["progress"]) for event in seen] == [
            ("queued", None),
            ("running", None),
            ("succeeded", 0.4),
        ]
        assert (seen[-1]["stage"], seen[-1]["message"]) == ("loading", "x")


async def test_when_the_server_goes_followers_are_told(autojump_clock: MockClock) -> None:
    """Their streams end with `bye`, and their ids lead on."""
    async with served() as (s, app):
        async with following(app, "/events/runs") as quiet, following(app, "/events/log") as busy:
            await s.finished((await s.start("greet"))["run_id"])
            await busy.until("record", 3)
            s.node.leaving.set()
            for stream in (quiet, busy):
                await stream.over.wait()
                assert stream.events[-1].kind == "bye"
                assert await s.node.log.resolve(stream.parser.last_id)
        async with following(app, "/events/runs") as late:
            await late.over.wait()
        assert [event.kind for event in late.events] == ["bye"]


async def test_a_stream_that_cannot_go_on_says_so(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the last event; the client may come back to its place."""
    async with served() as (s, app), following(app, "/events/runs") as stream:
        await s.start("nap", args={"seconds": 50})
        await trio.sleep(1)

        async def broken(*_: object) -> None:
            raise OperationError("INTERNAL", "oops")

        monkeypatch.setattr(
            "perdure.runtime.kernel.channels.subscription.Subscription.next_delivery", broken
        )
        await s.cancel(LOCAL, CancelRun(run_id=stream.events[0].data["run_id"]))
        await stream.over.wait()
        assert stream.events[-1].data["code"] == "INTERNAL"


async def test_a_run_that_ends_just_when_a_pull_is_given_up_still_ends_the_stream(
    autojump_clock: MockClock,
) -> None:
    """A heartbeat that comes in between loses no end, wherever it hits."""
    async with served() as (s, _):
        run_id = (await s.start("greet"))["run_id"]
        await s.finished(run_id)
        head = await s.cursor()
        for tenth in range(40):
            follow = await s.follow("run", run_id=run_id, after=head)
            with trio.move_on_after(tenth / 10_000):
                assert (await follow.next_delivery()).end
                continue
            with trio.fail_after(100):
                assert (await follow.next_delivery()).end
