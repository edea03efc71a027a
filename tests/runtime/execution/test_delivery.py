"""When outputs reach the log, and with what."""

from __future__ import annotations

import itertools
from itertools import pairwise

import trio
from trio.testing import MockClock

from perdure.actors.run.events import (
    ExportAppended,
    LogBatch,
    ProgressReported,
    QuestionAsked,
    RunEnded,
    StageChanged,
    StepRecorded,
)
from perdure.eventlog import MemoryStore
from perdure.runtime.plugins.run_context import RunContext
from tests.runtime.execution.test_current_run import PLUGINS, Ran, Scripted, ran
from tests.runtime.execution.test_escalation import set_clock
from tests.runtime.service import events, service, until_ended


def commits(end: Ran, *kinds: type) -> list[set[int]]:
    """The moments at which events of each kind were written."""
    records = end.world.store._records
    return [{r.commit_time for r in records if r.name == kind.event_name} for kind in kinds]  # type: ignore[attr-defined]


async def test_outputs_before_the_end_are_in_the_end(autojump_clock: MockClock) -> None:
    """What an entry puts out last is written together with its end (R27)."""

    async def body(ctx: RunContext) -> str:
        await ctx.run.export_text("last")
        ctx.run.progress(0.9)
        ctx.run.log("a line")
        return "value"

    end = await ran(body)
    assert end.record["progress"] == 0.9
    assert [item["type"] for item in end.items] == ["text", "json"]
    result = {"export_item_id": f"{end.record['run_id']}.2", "type": "json"}
    assert end.record["result_refs"] == [result]
    (at_the_end,) = commits(end, RunEnded)
    assert commits(end, ExportAppended, ProgressReported, LogBatch) == [at_the_end] * 3


async def test_what_waits_leaves_with_the_next_step(autojump_clock: MockClock) -> None:
    """In the same append."""

    async def nothing() -> None:
        pass

    async def body(ctx: RunContext) -> None:
        await ctx.run.export_text("before the step")
        ctx.run.log("a line")
        await ctx.run.step("s", nothing)
        await trio.sleep(10)

    end = await ran(body)
    exported, logged, recorded = commits(end, ExportAppended, LogBatch, StepRecorded)
    assert exported == logged == recorded


async def test_reports_are_heard_again_after_the_last_recorded_step(
    autojump_clock: MockClock,
) -> None:
    """What was reported before a crash is not reported again; what is new is."""

    async def nothing() -> None:
        pass

    async def body(ctx: RunContext) -> None:
        for number in range(4):
            await ctx.run.step(f"s{number}", nothing)
            ctx.run.progress((number + 1) / 4, f"life {lives}")
            await trio.sleep(10)

    lives = 1
    Scripted.body = staticmethod(body)
    store = MemoryStore()
    async with service(store, PLUGINS) as s:
        run_id = (await s.start("go"))["run_id"]
        await trio.sleep(15)
    lives = 2
    async with service(store, PLUGINS) as s:
        await s.finished(run_id)
        reports = s.world.events(run_id, ProgressReported)
        assert [(report.progress, report.message) for report in reports] == [
            (0.25, "life 1"),
            (0.5, "life 1"),
            (0.5, "life 2"),
            (0.75, "life 2"),
            (1.0, "life 2"),
        ]


async def test_reports_are_a_window_apart_however_long_a_commit_takes(
    autojump_clock: MockClock,
) -> None:
    """By the instants at which they are stored, which followers see as updated_at (R112)."""
    async with service(plugins=PLUGINS) as s:
        env, delays = s.world.executor.context.env, itertools.cycle([0.045, 0.001, 0.02])

        async def body(ctx: RunContext) -> None:
            for number in range(300):
                ctx.run.status(f"stage {number}", f"message {number}")
                ctx.run.progress(number / 300)
                env.delay = next(delays)  # type: ignore[attr-defined]
                await trio.sleep(0.011)
            await trio.sleep(1)

        Scripted.body = staticmethod(body)
        follower = await s.follow("runs", after=await s.cursor())
        await s.start("go")
        seen = await until_ended(follower)
        reports = [change for change in seen if change["progress"] is not None][:-1]
        times = [change["updated_at"] for change in reports]
        assert 20 <= len(reports) <= 34
        assert min(later - earlier for earlier, later in pairwise(times)) >= 0.1 - 1e-6


async def test_stage_progress_and_message_are_told_together(autojump_clock: MockClock) -> None:
    """One record and one delta carry both; the message is the newest that was given (R97, R100)."""

    async def body(ctx: RunContext) -> None:
        ctx.run.status("loading", "the first part")
        ctx.run.progress(0.25)
        await trio.sleep(1)
        ctx.run.progress(0.5)
        await trio.sleep(1)
        ctx.run.progress(0.75, "nearly")
        ctx.run.status("saving")
        await trio.sleep(1)

    Scripted.body = staticmethod(body)
    async with service(plugins=PLUGINS) as s:
        follower = await s.follow("runs", after=await s.cursor())
        run_id = (await s.start("go"))["run_id"]
        seen = (await until_ended(follower))[2:-1]
        told = [{name: c.get(name, "-") for name in ("progress", "stage", "message")} for c in seen]
        assert [tuple(each.values()) for each in told] == [
            (0.25, "loading", "the first part"),
            (0.5, "-", "-"),
            (0.75, "saving", None),
        ]
        assert len(s.world.events(run_id, ProgressReported)) == 3
        assert s.world.events(run_id, StageChanged) == []
        first = await s.cursor()
        end = await s.read(run_id, at=first)
        assert (end["stage"], end["message"]) == ("saving", None)


async def test_progress_without_a_message_leaves_that_of_the_stage(
    autojump_clock: MockClock,
) -> None:
    """A report says nothing about what it does not name."""

    async def body(ctx: RunContext) -> None:
        ctx.run.status("loading", "the first part")
        await trio.sleep(1)
        ctx.run.progress(0.5)
        await trio.sleep(1)
        await trio.sleep_forever()

    Scripted.body = staticmethod(body)
    async with service(plugins=PLUGINS) as s:
        run_id = (await s.start("go"))["run_id"]
        await trio.sleep(5)
        run = await s.read(run_id)
        assert (run["progress"], run["stage"]) == (0.5, "loading")
        assert run["message"] == "the first part"


async def test_a_question_and_what_was_reported_before_it_are_one_change(
    autojump_clock: MockClock,
) -> None:
    """It waits for no window, and the reports after it wait for theirs."""

    async def body(ctx: RunContext) -> None:
        ctx.run.progress(0.1)
        await trio.sleep(1)
        ctx.run.progress(0.2)
        ctx.run.status("never seen")
        await ctx.run.ask("which?")

    Scripted.body = staticmethod(body)
    async with service(plugins=PLUGINS) as s:
        follower = await s.follow("runs", after=await s.cursor())
        run_id = (await s.start("go"))["run_id"]
        await trio.sleep(5)
        asking = (await events(follower))[-1]
        assert (asking["stage"], asking["message"]) == ("input_required", "which?")
        assert asking["progress"] == 0.2
        names = [record.name for record in s.world.store._records][-2:]
        assert names == [QuestionAsked.event_name, ProgressReported.event_name]
        assert (await s.read(run_id))["stage"] == "input_required"


async def test_a_report_that_is_too_long_costs_no_run(autojump_clock: MockClock) -> None:
    """Its beginning is seen, and a mark where it was cut."""

    async def body(ctx: RunContext) -> None:
        ctx.run.status("s" * 65, "m" * 4097)

    end = await ran(body)
    assert end.record["status"] == "succeeded"
    assert end.record["stage"] == "s" * 63 + "…"
    assert end.record["message"] == "m" * 4095 + "…"


async def test_a_clock_that_is_set_back_neither_stops_reports_nor_hurries_them(
    autojump_clock: MockClock,
) -> None:
    """The log stays at the latest instant it has seen; reports go by the clock as it is now."""
    async with service(plugins=PLUGINS) as s:

        async def body(ctx: RunContext) -> None:
            for number in range(200):
                ctx.run.progress(number / 200)
                await trio.sleep(0.01)
                if number == 100:
                    set_clock(s.world, -3600.0)
            await trio.sleep(1)

        Scripted.body = staticmethod(body)
        run_id = (await s.start("go"))["run_id"]
        await s.finished(run_id)
        reports = [report.progress for report in s.world.events(run_id, ProgressReported)]
        assert 5 <= sum(progress > 0.5 for progress in reports) <= 11
