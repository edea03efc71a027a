"""When outputs reach the log, and with what."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from perdure.actors.run.events import (
    ExportAppended,
    LogBatch,
    ProgressReported,
    RunEnded,
    StepRecorded,
)
from perdure.eventlog import MemoryStore
from perdure.runtime.plugins.run_context import RunContext
from tests.runtime.execution.test_current_run import PLUGINS, Ran, Scripted, ran
from tests.runtime.service import service


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
    assert end.record["result_refs"] == [{"export_item_id": f"{end.record['run_id']}.2"}]
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
