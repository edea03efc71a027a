"""What runs promise their followers, asked over HTTP."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, cast

import msgspec
import trio
from trio.testing import MockClock

from perdure.actors.run.events import ExportAppended
from perdure.eventlog.env import FaultPoint
from perdure.eventlog.errors import DiskFull
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.runs.requests import CancelRun
from tests.runtime.execution.test_current_run import PLUGINS, Scripted
from tests.runtime.http.client import Client
from tests.runtime.http.sse import following
from tests.runtime.http.test_event_routes import served, told
from tests.runtime.service import TWO_PLUGINS
from tests.runtime.world import CALLS

if TYPE_CHECKING:
    from perdure.eventlog.simulation import SimEnv


async def test_only_runs_that_enter_a_status_pass_its_filter(autojump_clock: MockClock) -> None:
    """Not those that report while they are in it (R41); the plugin's filter is a filter (R40)."""
    async with served(plugins=TWO_PLUGINS) as (s, app):
        begin = await s.cursor()
        mine = (await s.start("stages"))["run_id"]
        theirs = (await s.start("greet", plugin_id="other"))["run_id"]
        for run_id in (mine, theirs):
            await s.finished(run_id)
        for query, expected in (
            ("status=running&plugin_id=test", [(mine, "running")]),
            (
                "plugin_id=other&status=queued,succeeded",
                [(theirs, "queued"), (theirs, "succeeded")],
            ),
        ):
            async with following(app, f"/events/runs?after={begin}&{query}") as stream:
                await trio.sleep(1)
            seen = [(event["run_id"], event["status"]) for event in told(stream.events)]
            assert seen == expected


async def test_a_cancel_is_seen_step_by_step(autojump_clock: MockClock) -> None:
    """The request and the end that follows are changes of their own (R9)."""
    async with served() as (s, app):
        async with following(app, f"/events/runs?after={await s.cursor()}") as stream:
            run_id = (await s.start("polite"))["run_id"]
            await trio.sleep(1)
            await s.cancel(LOCAL, CancelRun(run_id=run_id))
            seen = told(await stream.until("run", 4))
        assert [event["status"] for event in seen] == [
            "queued",
            "running",
            "cancel_requested",
            "canceled",
        ]


async def test_reports_are_on_the_stream_and_in_the_record(autojump_clock: MockClock) -> None:
    """A stage with its message (R100), progress with its own (R97); the status stays."""
    async with served() as (s, app), Client(s, app).http as http:
        async with following(app, f"/events/runs?after={await s.cursor()}") as stream:
            run_id = (await s.start("stages"))["run_id"]
            staged, progressed = told(await stream.until("run", 4))[2:]
            record = (await http.get(f"/runs/{run_id}")).json()
        assert (staged["stage"], staged["message"]) == ("loading", "the first part")
        assert (staged["progress"], staged["status"]) == (None, "running")
        assert (progressed["progress"], progressed["message"]) == (0.4, "x")
        assert progressed["status"] == "running"
        assert (record["progress"], record["message"], record["stage"]) == (0.4, "x", "loading")
        assert record["status"] == "running"


async def test_stage_and_progress_that_leave_together_are_one_change(
    autojump_clock: MockClock,
) -> None:
    """Nobody sees one without the other (R112)."""

    async def body(ctx: RunContext) -> None:
        ctx.run.status("loading", "the first part")
        ctx.run.progress(0.4)
        await trio.sleep(1)

    Scripted.body = staticmethod(body)
    async with (
        served(plugins=PLUGINS) as (s, app),
        following(app, f"/events/runs?after={await s.cursor()}") as stream,
    ):
        await s.start("go")
        seen = told(await stream.until("run", 4))
    assert [(event.get("stage"), event["progress"]) for event in seen][:3] == [
        (None, None),
        (None, None),
        ("loading", 0.4),
    ]
    assert seen[2]["message"] == "the first part"


async def test_a_change_is_small_on_the_wire(autojump_clock: MockClock) -> None:
    """It has what every follower needs, in less than 2 KiB, however long a message is (R37)."""

    async def body(ctx: RunContext) -> None:
        ctx.run.status("\u754c" * 64, "\u4e16" * 4096)
        await trio.sleep(1)
        ctx.run.progress(0.4, "\0" * 4096)  # six characters each in JSON
        await trio.sleep(1)

    Scripted.body = staticmethod(body)
    async with served(plugins=PLUGINS) as (s, app):
        async with following(app, f"/events/runs?after={await s.cursor()}") as stream:
            run_id = (await s.start("go"))["run_id"]
            await stream.until("run", 3)
            before = stream.bytes
            await stream.until("run", 4)
            assert stream.bytes - before < 2048
            seen = told(await stream.until("run", 5))
        assert [event["op"] for event in seen] == ["add", *["change"] * 4]
        for event in seen:
            assert {"op", "run_id", "status", "progress", "updated_at"} <= event.keys()
            assert (event["run_id"], type(event["updated_at"])) == (run_id, float)
            assert len(msgspec.json.encode(event)) < 2048
        assert [event["progress"] for event in seen] == [None, None, None, 0.4, 0.4]


async def test_reports_come_at_most_once_in_a_window(autojump_clock: MockClock) -> None:
    """A report every millisecond is about ten changes a second, and the last one comes (R112)."""

    async def body(ctx: RunContext) -> None:
        for number in range(1000):
            ctx.run.progress(number / 1000, f"{number}")  # and nothing else, that would flush it
            await trio.sleep(0.001)

    Scripted.body = staticmethod(body)
    async with served(plugins=PLUGINS) as (s, app):
        async with following(app, f"/events/runs?after={await s.cursor()}") as stream:
            run_id = (await s.start("go"))["run_id"]
            await s.finished(run_id)
            await trio.sleep(1)
        reports = [event for event in told(stream.events) if "message" in event]
        times = [event["updated_at"] for event in reports]
        gaps = [after - before for before, after in pairwise(times)]
        assert len(gaps) >= 8
        assert min(gaps[:-1]) >= 0.0999  # the last comes with the end
        assert reports[-1]["message"] == "999"


async def test_nobody_hears_of_an_item_that_is_not_kept(autojump_clock: MockClock) -> None:
    """While the disk takes nothing nothing is told; when it does, what is told is there (R49)."""

    def full() -> None:
        raise DiskFull("the disk is full")

    async with served() as (s, app), Client(s, app).http as http:
        run_id = (await s.start("slow_exports", args={"n": 3}))["run_id"]
        planted = cast("SimEnv", s.node.env).faults.planted

        async def all_heard_are_kept(count: int) -> None:
            heard = [event.data for event in stream.events if event.kind == "export"]
            assert count <= len(heard) <= len(s.world.events(run_id, ExportAppended))
            kept = (await http.get(f"/runs/{run_id}/export")).json()["items"]
            assert heard == kept[: len(heard)]

        async with following(app, f"/events/export?run_id={run_id}") as stream:
            await stream.until("export", 1)
            await all_heard_are_kept(1)
            planted[FaultPoint.WRITER_COMMIT] = full
            await trio.sleep(30)
            assert [item["text"] for item in told(stream.events)] == ["item 0"]
            await all_heard_are_kept(1)
            del planted[FaultPoint.WRITER_COMMIT]
            for count in (2, 3):
                await stream.until("export", count)
                await all_heard_are_kept(count)


async def test_exports_are_filtered_by_run_and_only_added(autojump_clock: MockClock) -> None:
    """Only that run's items come, each once and for good (R45, R46, R51).

    Whatever is asked of the run or of its items, no item changes or goes (R46).
    """
    async with served() as (s, app), Client(s, app).http as http:
        begin = await s.cursor()
        mine, other = [(await s.start("exports"))["run_id"] for _ in range(2)]
        for run_id in (mine, other):
            await s.finished(run_id)
        kept = (await http.get(f"/runs/{mine}/export")).json()["items"]
        for path in (f"/runs/{mine}/export", f"/runs/{mine}/export/{kept[0]['export_item_id']}"):
            for method in ("DELETE", "PUT", "PATCH", "POST"):
                refusal = await http.request(method, path, json={**kept[0], "text": "changed"})
                assert refusal.status_code in {404, 405}, (method, path)
        for verb in ("cancel", "retry"):
            assert (await http.post(f"/runs/{mine}/{verb}")).is_success
        await trio.sleep(10)
        async with following(app, f"/events/export?run_id={mine}&after={begin}") as stream:
            await stream.over.wait()
        assert [event.kind for event in stream.events] == ["export"] * 4 + ["end"]
        assert told(stream.events)[:4] == kept
        assert {item["run_id"] for item in kept} == {mine}
        assert len({item["export_item_id"] for item in kept}) == 4
        assert (await http.get(f"/runs/{mine}/export")).json()["items"] == kept


async def test_followers_hear_that_a_step_is_tried_no_more(autojump_clock: MockClock) -> None:
    """Live and later: the stage of its tries ends with them, as the record has it."""
    CALLS.clear()
    async with served() as (s, app):
        begin = await s.cursor()
        async with following(app, f"/events/runs?after={begin}") as stream:
            run_id = (await s.start("flaky", args={"good_after": 2}))["run_id"]
            await s.finished(run_id)
            await trio.sleep(1)
        stages = [event["stage"] for event in told(stream.events) if "stage" in event]
        assert stages == ["retrying", "retrying", None]
        async with following(app, f"/events/runs?after={begin}") as late:
            await trio.sleep(1)
        last = told(late.events)[-1]
        assert (last["status"], last.get("stage"), last.get("message")) == ("succeeded", None, None)
