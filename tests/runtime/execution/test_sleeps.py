"""Durable sleeps, and a wall clock that is set meanwhile."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.status import Status
from perdure.eventlog.simulation import SimEnv
from perdure.eventlog.units import NANOSECONDS
from tests.runtime.world import world


@pytest.mark.parametrize(("set_by", "lasts"), [(-3600, 90), (3600, 60)])
async def test_a_clock_that_is_set_makes_no_sleep_longer(
    autojump_clock: MockClock, set_by: float, lasts: float
) -> None:
    """Set back, the time that was left counts; set forward, it is noticed within a minute."""
    async with world() as w:
        run_id = await w.create("nap", limit=10_000, seconds=90)
        await trio.sleep(1)
        env = w.executor.context.env
        assert isinstance(env, SimEnv)
        env.wall_offset += round(set_by * NANOSECONDS)
        begun = trio.current_time()
        assert (await w.end(run_id)).status is Status.SUCCEEDED
        assert trio.current_time() - begun == pytest.approx(lasts, abs=2)
