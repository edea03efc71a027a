"""Hosts and executions when two things happen at once."""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.mailbox import MAX_MAIL
from perdure.actors.run.commands import Answer, Recover, RequestCancel
from perdure.actors.run.events import Activated, ExportAppended, RunEnded, StepRecorded
from perdure.actors.run.status import Status
from perdure.actors.run.stream import stream_of
from perdure.eventlog import (
    DiskFull,
    LogClosed,
    MemoryStore,
    OutcomeUnknown,
    StoreFailed,
    UnknownEvent,
)
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.runs.part import runs_of
from tests.actors.test_mailbox import Moody
from tests.runtime.execution.test_current_run import PLUGINS, Scripted
from tests.runtime.service import service
from tests.runtime.world import CALLS, World, world


async def nothing_runs_after_a_while(w: World) -> None:
    """Wait a while; then the host executes nothing."""
    await trio.sleep(100)
    assert w.executor.running == 0


# Executions that have been replaced, or whose run has ended without them


async def test_an_execution_given_up_for_lost_says_nothing_more(autojump_clock: MockClock) -> None:
    """It comes back, is not listened to and ends, even out of a step that nothing interrupts."""
    async with world() as w:
        run_id = await w.create("guarded")
        await trio.sleep(1)
        w.executor.dispatch(run_id, "test")
        await trio.sleep(30)
        assert w.executor.running == 1
        assert len(w.events(run_id, Activated)) == 2
        assert len(w.events(run_id, StepRecorded)) == 1
        await w.executor.ask(run_id, RequestCancel(by="b", at=1))
        await w.end(run_id)
        await nothing_runs_after_a_while(w)


@pytest.mark.parametrize("shielded", [True, False])
@pytest.mark.parametrize("how", ["overtaken", "drained"])
async def test_an_entry_that_is_over_begins_no_step(
    autojump_clock: MockClock, how: str, shielded: bool
) -> None:
    """Also where it has not heard of it yet: another does the step."""
    begun: list[float] = []

    async def one() -> None:
        begun.append(trio.current_time())

    async def body(ctx: RunContext) -> None:
        with trio.CancelScope(shield=True) as scope:
            await trio.sleep(5)
            scope.shield = shielded
            await ctx.run.step("s", one)

    Scripted.body = staticmethod(body)
    async with service(None, PLUGINS) as s:
        run_id = (await s.start("go"))["run_id"]
        await trio.sleep(1)
        if how == "overtaken":
            runs_of(s.node).executor.dispatch(run_id, "test")
            assert (await s.finished(run_id))["status"] == "succeeded"
            assert len(begun) == 1
            assert begun[0] > 5.9
        else:
            runs_of(s.node).executor.drain()
            await runs_of(s.node).executor.settled()
            assert len(begun) == (1 if shielded else 0)  # what it shields, it is to end


async def test_the_execution_that_took_over_hears_what_happens(autojump_clock: MockClock) -> None:
    """The end of the one before takes nothing away from it."""
    async with world() as w:
        run_id = await w.create("guarded")
        await trio.sleep(1)
        w.executor.dispatch(run_id, "test")
        await trio.sleep(30)
        (question,) = (await w.state(run_id)).open_questions
        await w.executor.ask(run_id, Answer(question_id=question, answer="this", by="b", at=1))
        assert (await w.end(run_id)).status is Status.SUCCEEDED


async def test_an_activation_that_is_overtaken_does_not_execute(autojump_clock: MockClock) -> None:
    """Overtaken while it read the history, it does not take itself for its successor."""
    async with world() as w:
        run_id = await w.create("guarded")
        await trio.sleep(1)
        w.executor.dispatch(run_id, "test")
        for _ in range(100):
            await trio.sleep(0.0001)
            if (await w.state(run_id)).epoch == 2:
                w.executor.dispatch(run_id, "test")
                break
        await trio.sleep(100)
        assert len(w.events(run_id, Activated)) == 3
        assert len(w.events(run_id, StepRecorded)) == 1


async def test_an_execution_that_is_over_hears_and_does_nothing(autojump_clock: MockClock) -> None:
    """Told of a cancel request at its very end, it does not fail in somebody's ask."""
    async with world() as w:
        run_id = await w.create("deaf")
        await trio.sleep(1)
        execution = w.executor._executions[run_id]
        w.executor.dispatch(run_id, "test")
        await trio.sleep(1)
        canceled = await w.executor.ask(run_id, RequestCancel(by="b", at=1))
        execution.see(canceled.state)
        assert (await w.end(run_id)).status is Status.CANCELED
        assert len(w.events(run_id, RunEnded)) == 1


async def test_an_execution_stops_when_its_run_has_ended_without_it(
    autojump_clock: MockClock,
) -> None:
    """Whoever ended it; an entry that never looks is interrupted."""
    async with world() as w:
        run_id = await w.create("deaf")
        await trio.sleep(1)
        await w.executor.ask(run_id, RequestCancel(by="b", at=1))
        await w.executor.ask(run_id, Recover(resumes=True, compatible=True, at=1))
        assert (await w.end(run_id)).status is Status.CANCELED
        await trio.sleep(0.1)
        assert w.executor.running == 0


# Recovery


async def test_recovery_takes_up_only_what_was_there_before(autojump_clock: MockClock) -> None:
    """A child that a run starts as soon as it is taken up is not taken up as well."""
    store = MemoryStore()
    async with world(store) as w:
        w.executor.drain()
        parent = await w.create("parent")
        for _ in range(30):
            await w.create("nap", seconds=1)
    async with world(store) as w:
        await w.end(parent)
        (child,) = (await w.state(parent)).children
        await w.end(child)
        assert len(w.events(child, Activated)) == 1


async def test_a_canceled_parents_children_are_canceled_after_a_crash(
    autojump_clock: MockClock,
) -> None:
    """Whenever the crash comes: also when the parent has ended and nobody told its children."""
    ended_before_the_crash = 0
    for moment in range(1, 40):
        store, parent, child = MemoryStore(), "", ""
        try:
            with trio.CancelScope() as life:
                async with world(store, idle=0.1) as w:
                    parent = await w.create("parent")
                    await trio.sleep(1)
                    (child,) = (await w.state(parent)).children
                    await trio.sleep(1)  # the child's actor leaves; to come back takes its time
                    life.deadline = trio.current_time() + moment * 0.0005
                    await w.executor.ask(parent, RequestCancel(by="b", at=1))
                    await trio.sleep_forever()
        except* LogClosed:
            pass  # the log was closed under the request
        ended_before_the_crash += store.stream_state(stream_of(parent)).sealed
        async with world(store) as w:
            outcome = (await w.end(parent)).status
            assert (await w.end(child)).status is outcome
    assert 0 < ended_before_the_crash < 39


# Waiting for the end


async def test_whoever_waits_for_an_end_hears_of_it(autojump_clock: MockClock) -> None:
    """Also when another who waited gives up at the moment one begins to wait."""
    async with world(idle=1) as w:
        run_id = await w.create("nap", seconds=50)
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as first:
                nursery.start_soon(cancel_after, 10, first)
                nursery.start_soon(end_after, 10, w, run_id)
                await w.end(run_id)


async def cancel_after(seconds: float, scope: trio.CancelScope) -> None:
    """Give up while somebody else looks at the run, whose actor has to be started for that."""
    await trio.sleep(seconds)
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


async def end_after(seconds: float, w: World, run_id: str) -> None:
    """Begin to wait later."""
    await trio.sleep(seconds)
    with trio.fail_after(1000):
        await w.executor.end_of(run_id)


# Trouble that is not the host's end


async def test_an_entry_does_not_see_its_host_go_down(autojump_clock: MockClock) -> None:
    """When the log fails under a step, the entry stops there; to its run nothing has happened."""
    CALLS.clear()
    store = Moody()
    with pytest.raises(BaseExceptionGroup) as ended:  # noqa: PT012 - the life of a host
        async with world(store) as w:
            run_id = await w.create("watchful")
            await trio.sleep(0.5)
            store.error = StoreFailed("on fire")
            await w.end(run_id)
    assert ended.group_contains(OutcomeUnknown)
    assert CALLS == []


async def test_a_run_that_is_asked_too_much_does_not_bring_the_host_down(
    autojump_clock: MockClock,
) -> None:
    """Its execution waits until there is room in the mailbox."""
    store = Moody()
    async with world(store) as w:
        run_id = await w.create("slow_exports", n=3)
        await trio.sleep(0.5)
        store.error = DiskFull("full")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(w.executor.ask, run_id, RequestCancel(by="b", at=1))
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(MAX_MAIL):
                nursery.start_soon(w.executor.runs.look, stream_of(run_id))
            await trio.sleep(2)
            assert w.executor.running == 1
            store.error = None
        run = await w.end(run_id)
        assert (run.status, run.exports) == (Status.SUCCEEDED, 3)  # it was faster than its cancel
        assert len(w.events(run_id, ExportAppended)) == 3


async def test_a_host_may_be_left_while_its_runs_speak(autojump_clock: MockClock) -> None:
    """What is on its way is given up without a word; the next host has all of it once."""
    for moment in range(20):
        store = MemoryStore()
        async with world(store) as w:
            run_id = await w.create("slow_exports", n=3)
            await trio.sleep(1.05 + moment * 0.0005)
        async with world(store) as w:
            run = await w.end(run_id)
            assert (run.status, run.exports) == (Status.SUCCEEDED, 3)


async def test_an_entry_that_is_not_loaded_may_be_canceled_meanwhile(
    autojump_clock: MockClock,
) -> None:
    """The host finds that the run has ended, and goes on."""
    async with world() as w:
        run_id = await w.create("nowhere")
        run = await w.end(run_id)
        await w.executor._not_ready(run_id, run)
        assert len(w.events(run_id, RunEnded)) == 1


async def test_a_run_that_cannot_be_read_is_nobody_elses_trouble(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever asks for it is told at once; the host starts, and executes the others."""
    store = MemoryStore()
    async with world(store) as w:
        ids = [await w.create("nap", seconds=10) for _ in range(2)]
        await trio.sleep(1)
    stored = store._streams[stream_of(ids[0])]
    stored[1] = stored[1]._replace(name="run.of-another-release")
    with caplog.at_level(logging.CRITICAL):
        async with world(store) as w:
            assert (await w.end(ids[1])).status is Status.SUCCEEDED
            with trio.fail_after(1), pytest.raises(UnknownEvent):
                await w.state(ids[0])


async def test_a_drain_reaches_what_is_just_being_activated(autojump_clock: MockClock) -> None:
    """Whenever it comes, nothing runs on, and the next host goes on."""
    for moment in range(12):
        store = MemoryStore()
        async with world(store) as w:
            run_id = await w.create("nap", seconds=50)
            await trio.sleep(moment * 0.0005)
            w.executor.drain()
            with trio.fail_after(5):
                await w.executor.settled()
        async with world(store) as w:
            assert (await w.end(run_id)).status is Status.SUCCEEDED
