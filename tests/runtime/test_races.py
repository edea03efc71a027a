"""Hosts and executions when two things happen at once."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from actors.run.commands import Answer, Recover, RequestCancel
from actors.run.events import Activated, StepRecorded
from actors.run.status import Status
from tests.runtime.world import World, world


async def nothing_runs_after_a_while(w: World) -> None:
    """Wait a while; then the host executes nothing."""
    await trio.sleep(100)
    assert w.host.running == 0


# Executions that have been replaced, or whose run has ended without them


async def test_an_execution_given_up_for_lost_says_nothing_more(autojump_clock: MockClock) -> None:
    """It comes back, is not listened to and ends, even out of a step that nothing interrupts."""
    async with world() as w:
        run_id = await w.create("guarded")
        await trio.sleep(1)
        w.host.dispatch(run_id, "test")
        await trio.sleep(30)
        assert w.host.running == 1
        assert len(w.events(run_id, Activated)) == 2
        assert len(w.events(run_id, StepRecorded)) == 1
        await w.host.ask(run_id, RequestCancel(by="b", at=1))
        await w.end(run_id)
        await nothing_runs_after_a_while(w)


async def test_the_execution_that_took_over_hears_what_happens(autojump_clock: MockClock) -> None:
    """The end of the one before takes nothing away from it."""
    async with world() as w:
        run_id = await w.create("guarded")
        await trio.sleep(1)
        w.host.dispatch(run_id, "test")
        await trio.sleep(30)
        (question,) = (await w.state(run_id)).open_questions
        await w.host.ask(run_id, Answer(question_id=question, answer="this", by="b", at=1))
        assert (await w.end(run_id)).status is Status.SUCCEEDED


async def test_an_execution_stops_when_its_run_has_ended_without_it(
    autojump_clock: MockClock,
) -> None:
    """Whoever ended it; an entry that never looks is interrupted."""
    async with world() as w:
        run_id = await w.create("deaf")
        await trio.sleep(1)
        await w.host.ask(run_id, RequestCancel(by="b", at=1))
        await w.host.ask(run_id, Recover(resumes=True, compatible=True, at=1))
        assert (await w.end(run_id)).status is Status.CANCELED
        await trio.sleep(0.1)
        assert w.host.running == 0
