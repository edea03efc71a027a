"""Durable steps: named once, recorded once."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.events import ProgressReported, StepRecorded
from perdure.eventlog import MemoryStore
from perdure.runtime.plugins.contract import PluginError, Retry, StepError
from perdure.runtime.plugins.run_context import RunContext
from tests.runtime.execution.test_current_run import PLUGINS, Scripted, ran
from tests.runtime.service import service


async def test_a_step_without_a_name_of_its_own_is_refused_loudly(
    autojump_clock: MockClock,
) -> None:
    """Two steps of one name would be one after a crash."""

    async def one() -> int:
        return 1

    async def body(ctx: RunContext) -> None:
        await ctx.run.step("s", one)
        with pytest.raises(StepError, match="'s' was used before"):
            await ctx.run.step("s", one)
        with pytest.raises(StepError):
            await ctx.run.sleep(1, name="s")
        await ctx.run.sleep(1)
        await ctx.run.sleep(1)

    assert (await ran(body)).record["status"] == "succeeded"


async def test_a_result_that_cannot_be_stored_says_so_at_the_step(
    autojump_clock: MockClock,
) -> None:
    """And a result comes back as it will come back after a crash."""

    async def unstorable() -> object:
        return object()

    async def pair() -> tuple[int, int]:
        return (1, 2)

    async def body(ctx: RunContext) -> None:
        assert await ctx.run.step("pair", pair) == [1, 2]  # type: ignore[comparison-overlap]
        await ctx.run.step("odd", unstorable)

    end = await ran(body)
    assert end.error[0] == "PLUGIN_ERROR"
    assert "the result of step 'odd' cannot be recorded" in end.error[1]
    assert [event.step for event in end.events(StepRecorded)] == ["pair"]


async def test_a_step_that_fails_for_good_fails_the_run(autojump_clock: MockClock) -> None:
    """After its last try the error is the entry's own."""

    async def fails() -> None:
        raise PluginError("NO_LUCK", "none at all", retriable=True)

    async def body(ctx: RunContext) -> None:
        await ctx.run.step("s", fails, retry=Retry(tries=3, delay=1))

    end = await ran(body)
    assert end.error == ("NO_LUCK", "none at all")
    assert end.record["error"] is not None
    assert end.record["error"]["retriable"]


async def test_reports_are_heard_when_the_last_recorded_step_is_no_more(
    autojump_clock: MockClock,
) -> None:
    """A version that was loaded since does something else there; what it reports is seen."""

    async def one() -> int:
        return 1

    async def before(ctx: RunContext) -> None:
        ctx.run.status("loading")
        ctx.run.progress(0.6)
        await ctx.run.step("kept", one)
        await ctx.run.step("gone", one)
        await ctx.run.sleep(1000, name="also gone")

    async def after(ctx: RunContext) -> None:
        ctx.run.status("loading")
        ctx.run.progress(0.1)
        await ctx.run.step("kept", one)
        await trio.sleep(1)  # long enough for a report to leave
        await ctx.run.step("new", one)
        ctx.run.progress(0.2)
        ctx.run.status("loading", "from here on")
        await trio.sleep(1)

    store = MemoryStore()
    Scripted.body = staticmethod(before)
    async with service(store, PLUGINS) as s:
        run_id = (await s.start("go"))["run_id"]
        await trio.sleep(1)
    Scripted.body = staticmethod(after)
    async with service(store, PLUGINS) as s:
        assert (await s.finished(run_id))["status"] == "succeeded"
        reports = s.world.events(run_id, ProgressReported)
        told = [(report.progress, report.stage, report.message) for report in reports]
        assert told == [(0.6, "loading", None), (0.2, "loading", "from here on")]


async def test_a_step_around_others_does_not_bring_old_reports_back(
    autojump_clock: MockClock,
) -> None:
    """It begins again, but what was reported within it, up to the last recorded one, was seen."""

    async def one() -> int:
        return 1

    async def body(ctx: RunContext) -> None:
        async def outer() -> None:
            ctx.run.progress(0.1)
            await trio.sleep(1)
            await ctx.run.step("first", one)
            ctx.run.progress(0.5)
            await ctx.run.sleep(10, name="last")
            ctx.run.progress(0.7)

        await ctx.run.step("outer", outer)

    store = MemoryStore()
    Scripted.body = staticmethod(body)
    async with service(store, PLUGINS) as s:
        run_id = (await s.start("go"))["run_id"]
        await trio.sleep(5)
    async with service(store, PLUGINS) as s:
        assert (await s.finished(run_id))["status"] == "succeeded"
        reports = s.world.events(run_id, ProgressReported)
        assert [report.progress for report in reports] == [0.1, 0.5, 0.7]
