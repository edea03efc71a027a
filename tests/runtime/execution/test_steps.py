"""Durable steps: named once, recorded once."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from perdure.actors.run.events import StepRecorded
from perdure.runtime.plugins.contract import PluginError, Retry, RunContext, StepError
from tests.runtime.execution.test_current_run import ran


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
