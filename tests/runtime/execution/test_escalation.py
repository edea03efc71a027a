"""An entry that should end does, or its run ends without it: when the log says so."""

from __future__ import annotations

from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.activation import Activation
from perdure.actors.run.commands import RequestCancel
from perdure.actors.run.events import CancelEscalated, CancelRequested, Deactivated, RunEnded
from perdure.actors.run.status import CancelMode, Outcome
from perdure.eventlog.simulation import SimEnv
from perdure.runtime.execution.execution import Execution
from tests.runtime.world import World, world

SECOND: Final = 1_000_000_000


async def cancel(w: World, run_id: str, *, within: float, **more: Any) -> None:
    """Ask a run to end, and record when a harder way follows."""
    now = w.executor.context.env.now()
    deadline = now + round(within * SECOND)
    await w.executor.ask(run_id, RequestCancel(by="b", at=now, deadline=deadline, **more))


async def running(w: World, *, shielded: bool = False, **more: Any) -> tuple[str, Execution]:
    """Start an entry that does not look for a cancel request."""
    run_id = await w.create("deaf", shielded=shielded, **more)
    await trio.sleep(1)
    return run_id, w.executor._executions[run_id]


def ended(w: World, run_id: str) -> RunEnded:
    """The end of a run."""
    (end,) = w.events(run_id, RunEnded)
    assert isinstance(end, RunEnded)
    return end


def set_clock(w: World, seconds: float) -> None:
    """Set the wall clock forward, or back."""
    env = w.executor.context.env
    assert isinstance(env, SimEnv)
    env.wall_offset += round(seconds * SECOND)


async def never_answer(*_: object) -> None:
    """Be a log that takes nothing."""
    await trio.sleep_forever()


async def test_what_is_recorded_is_what_fires(autojump_clock: MockClock) -> None:
    """Each harder way comes at the deadline of the request before it, not after a grace (R77)."""
    async with world(cancel_grace=5.0) as w:
        run_id, _ = await running(w, shielded=True)
        await cancel(w, run_id, within=60)
        await w.end(run_id)
        (asked,) = w.events(run_id, CancelRequested)
        interrupted, forced = w.events(run_id, CancelEscalated)
        assert asked.deadline <= interrupted.at < asked.deadline + SECOND
        assert (interrupted.mode, interrupted.deadline) == (
            CancelMode.INTERRUPT,
            interrupted.at + 5 * SECOND,
        )
        assert interrupted.deadline <= forced.at < interrupted.deadline + SECOND
        assert forced.deadline <= ended(w, run_id).at < forced.deadline + SECOND
        assert ended(w, run_id).outcome is Outcome.CANCELED


@pytest.mark.parametrize(("seconds", "most"), [(-3600, 61), (3600, 60)])
async def test_a_clock_that_is_set_makes_no_wait_longer(
    autojump_clock: MockClock, seconds: float, most: float
) -> None:
    """Set back, the time that was left counts; set forward, it is noticed within a minute."""
    async with world(cancel_grace=1.0) as w:
        run_id, _ = await running(w)
        await cancel(w, run_id, within=300 if seconds > 0 else 60)
        begun = trio.current_time()
        await trio.sleep(1)
        set_clock(w, seconds)
        await w.end(run_id)
        assert trio.current_time() - begun < most + 1


async def test_a_clock_set_back_while_a_request_is_recorded_makes_no_wait_longer(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is the time between the request and its deadline, as they were recorded."""
    async with world(cancel_grace=1.0) as w:
        run_id, _ = await running(w)
        ask = w.executor.ask

        async def ask_and_set_the_clock(*args: Any, **more: Any) -> Any:
            answer = await ask(*args, **more)
            set_clock(w, -3600)
            return answer

        begun = trio.current_time()
        with monkeypatch.context() as patch:
            patch.setattr(w.executor, "ask", ask_and_set_the_clock)
            await cancel(w, run_id, within=1)
        await w.end(run_id)
        assert trio.current_time() - begun < 5


async def test_a_drain_ends_no_run_however_it_is_canceled(autojump_clock: MockClock) -> None:
    """It lets go of the run when the entry has ended; the next host ends it."""
    async with world(cancel_grace=5.0) as w:
        run_id, execution = await running(w, shielded=True)
        w.executor.drain()
        await cancel(w, run_id, within=1, mode=CancelMode.INTERRUPT)
        await trio.sleep(100)
        assert execution.escalation.forced.is_set()
        assert w.events(run_id, RunEnded) == w.events(run_id, Deactivated) == []
        await trio.sleep(1000)
        assert len(w.events(run_id, Deactivated)) == 1
    async with world(w.store) as w:
        assert (await w.state(run_id)).status is Outcome.CANCELED.status


async def test_an_execution_that_broke_ends_its_run_without_its_entry(
    autojump_clock: MockClock,
) -> None:
    """One grace later: an entry that shields itself does not keep a failed run alive."""
    async with world(cancel_grace=5.0) as w:
        run_id, execution = await running(w, shielded=True)
        execution.break_off(ZeroDivisionError("the first"))
        execution.break_off(ZeroDivisionError("another"))
        broken_at = w.executor.context.env.now()
        run = await w.end(run_id)
        assert run.error is not None
        assert (run.error.code, run.error.message) == (
            "PLUGIN_ERROR",
            "ZeroDivisionError: the first",
        )
        assert ended(w, run_id).at - broken_at == pytest.approx(5 * SECOND, abs=SECOND)
        assert w.executor.running == 1  # the entry is left behind


async def test_a_log_that_takes_nothing_keeps_no_process_alive(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forced end that cannot be recorded is still an end for the process."""
    async with world(cancel_grace=5.0) as w:
        run_id, execution = await running(w, shielded=True)
        await cancel(w, run_id, within=5, mode=CancelMode.INTERRUPT)
        monkeypatch.setattr(w.executor, "ask", never_answer)
        await trio.sleep(4.5)
        assert not execution.escalation.forced.is_set()
        await trio.sleep(2)
        assert execution.escalation.forced.is_set()


async def test_a_log_that_takes_nothing_interrupts_an_entry_all_the_same(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was only asked to end is interrupted at the deadline, and killed a grace later."""
    async with world(cancel_grace=5.0) as w:
        run_id, execution = await running(w, shielded=True)
        await cancel(w, run_id, within=5)
        monkeypatch.setattr(w.executor, "ask", never_answer)
        await trio.sleep(4.5)
        assert execution.state.name == Activation.WORKING.name
        await trio.sleep(2)
        assert execution.state.name == Activation.INTERRUPTED.name
        assert not execution.escalation.forced.is_set()
        await trio.sleep(7)
        assert execution.escalation.forced.is_set()


async def test_a_host_that_is_gone_waits_for_no_process(autojump_clock: MockClock) -> None:
    """Its escalations end with it, and none can begin any more."""
    async with world() as w:
        _, canceled = await running(w, shielded=True)
        canceled.drain()
        _, other = await running(w)
    assert canceled.escalation.forced.is_set()
    assert other.escalation.begin_grace().is_set()
