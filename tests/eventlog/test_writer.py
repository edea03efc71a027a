from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from perdure.eventlog import (
    Append,
    EventLog,
    LogClosed,
    MemoryStore,
    Overloaded,
    ReadOnlyLog,
    Receipt,
    Record,
    StreamWrite,
    WriterLimits,
    WrongExpectedVersion,
    open_log,
)
from perdure.eventlog.store import Bounds
from perdure.eventlog.testing import example_event
from perdure.eventlog.writer import ANSWERS_AT_ONCE
from tests.eventlog.callers import Caller, start, write
from tests.eventlog.conftest import SteadyEnv


async def test_an_answer_means_on_disk(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """The receipt holds the very records that a read finds."""
    async with open_log(env, store) as log:
        receipt = await log.append(write("run/1"))
        assert store.read_all(0, Bounds()).records == list(receipt.records)
        assert receipt.mark == await log.head()


async def test_what_arrives_during_a_sync_is_the_next_batch(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """One commit for the first, one for all that came while it was being written."""
    async with open_log(env, store) as log, trio.open_nursery() as nursery:
        callers = [Caller(log, write(f"run/{n}")) for n in range(50)]
        await start(nursery, *callers)
        await trio.sleep(10)
        assert log.writer.commits == 2
        assert {caller.answered_at for caller in callers} == {2.0, 4.0}


class Ticks(trio.abc.Instrument):
    """Counts how often the event loop has gone round."""

    count = 0

    def before_io_wait(self, timeout: float) -> None:
        """Hear that a round has ended."""
        self.count += 1


async def test_few_are_answered_at_once(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """Whatever else is to be done gets its turn while a large batch is answered."""
    ticks, answered = Ticks(), Counter[int]()
    trio.lowlevel.add_instrument(ticks)

    async def append(log: EventLog, number: int) -> None:
        """Note in which round it is answered."""
        await log.append(write(f"run/{number}"))
        answered[ticks.count] += 1

    async with open_log(env, store) as log:
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(append, log, number)
        assert log.writer.commits <= 2
    assert answered.total() == 100
    assert max(answered.values()) == ANSWERS_AT_ONCE


async def test_nobody_waits_for_company(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """There is no timer: a lone append takes exactly as long as the disk."""
    async with open_log(env, store) as log:
        await log.append(write("run/1"))
        assert trio.current_time() == 2 * env.delay


async def test_cancelling_a_waiting_append_is_clean(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """An append that waits for its batch can be taken back; nothing of it is written."""
    async with open_log(env, store) as log, trio.open_nursery() as nursery:
        first, second = Caller(log, write("run/1")), Caller(log, write("run/2"))
        await start(nursery, first, second)
        second.scope.cancel()
        await trio.sleep(10)
        assert second.scope.cancelled_caught
        assert not second.answered
        assert [r.stream for r in store.read_all(0, Bounds()).records] == ["run/1"]


async def test_cancelling_an_append_that_is_being_written_is_harmless(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """Once its write has begun an append is answered, so the caller knows what the log knows."""
    async with open_log(env, store) as log, trio.open_nursery() as nursery:
        caller = Caller(log, write("run/1"))
        await start(nursery, caller)
        caller.scope.cancel()
        await trio.sleep(10)
        assert isinstance(caller.answer, Receipt)
        assert store.head().position == 1


async def test_a_conflict_in_one_batch_is_answered_after_the_sync(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """Two callers of one key in one fsync: the loser hears of it when the winner is on disk."""
    async with open_log(env, store) as log, trio.open_nursery() as nursery:
        blocker = Caller(log, write("run/1"))
        winner, loser = Caller(log, write("claim/1")), Caller(log, write("claim/1"))
        await start(nursery, blocker, winner, loser)
        await trio.sleep(3.5)  # the second batch is with the disk
        assert not winner.answered
        assert not loser.answered
        await trio.sleep(10)
        assert isinstance(winner.answer, Receipt)
        assert isinstance(loser.answer, WrongExpectedVersion)
        assert loser.answered_at is not None
        assert winner.answered_at is not None
        assert loser.answered_at > winner.answered_at


async def test_a_full_queue_refuses_new_work_only(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """Accepted work waits its turn while new work is told to come back later."""
    limits = WriterLimits(queued_appends=2)
    async with open_log(env, store, writer_limits=limits) as log, trio.open_nursery() as nursery:
        callers = [Caller(log, write(f"run/{n}"), new_work=True) for n in range(4)]
        patient = Caller(log, write("run/9"))
        await start(nursery, *callers, patient)
        await trio.sleep(30)
        assert [type(caller.answer) for caller in callers] == [
            Receipt,
            Receipt,
            Receipt,
            Overloaded,
        ]
        assert isinstance(patient.answer, Receipt)


async def test_the_bytes_that_wait_are_bounded_too(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """A few large appends fill the queue as many small ones do."""
    limits = WriterLimits(queued_bytes=1000)
    large = Append([StreamWrite("run/2", 0, [example_event(x=b"x" * 2000)])])
    async with open_log(env, store, writer_limits=limits) as log, trio.open_nursery() as nursery:
        await start(nursery, Caller(log, write("run/1")), Caller(log, large))
        with pytest.raises(Overloaded, match="try again later"):
            await log.append(write("run/3"), new_work=True)


async def test_a_batch_is_bounded(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """No commit takes more than its share, and all get their turn in order."""
    limits = WriterLimits(batch_appends=10)
    async with open_log(env, store, writer_limits=limits) as log, trio.open_nursery() as nursery:
        callers = [Caller(log, write(f"run/{n}")) for n in range(31)]
        await start(nursery, *callers)
        await trio.sleep(60)
        assert log.writer.commits == 4
        order = [r.stream for r in store.read_all(0, Bounds()).records]
        assert order == [f"run/{n}" for n in range(31)]


async def test_commit_times_never_decrease(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """A wall clock that jumps back does not take the log with it, nor does a restart."""
    async with open_log(env, store) as log:
        await log.append(write("run/1"))
        env.wall_offset = -86_400 * 10**9
        await log.append(write("run/2"))
    async with open_log(env, store) as log:
        await log.append(write("run/3"))
    times = [r.commit_time for r in store.read_all(0, Bounds()).records]
    assert times == sorted(times)


async def test_closing_writes_what_waits(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """The end of the block lets every append through that was accepted."""
    async with trio.open_nursery() as nursery:
        async with open_log(env, store) as log:
            callers = [Caller(log, write(f"run/{n}")) for n in range(5)]
            await start(nursery, *callers)
        assert store.head().position == 5
    assert all(isinstance(caller.answer, Receipt) for caller in callers)
    with pytest.raises(LogClosed):
        await log.append(write("run/9"))


async def test_a_cancelled_log_answers_everyone(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """Nobody waits for a writer that is gone: those being written succeed, the others hear it."""
    async with trio.open_nursery() as nursery:
        callers: list[Caller] = []
        with trio.move_on_after(1.5):
            async with open_log(env, store) as log:
                callers = [Caller(log, write(f"run/{n}")) for n in range(3)]
                await start(nursery, *callers)
                await trio.sleep_forever()
    assert [type(caller.answer) for caller in callers] == [Receipt, LogClosed, LogClosed]
    assert store.head().position == 1


async def test_a_reader_cannot_append(autojump_clock: MockClock, env: SteadyEnv) -> None:
    """A process beside the writer is told that it reads only."""
    async with open_log(env, MemoryStore(writable=False)) as log:
        with pytest.raises(ReadOnlyLog):
            await log.append(write("run/1"))


async def test_upkeep_happens_between_batches(autojump_clock: MockClock, env: SteadyEnv) -> None:
    """The store gets its time when it asks for it, and callers have their answers by then."""

    class Tidy(MemoryStore):
        needs_upkeep = False  # type: ignore[misc]
        kept_up = 0

        def commit(self, records: Sequence[Record]) -> None:
            super().commit(records)
            self.needs_upkeep = True  # type: ignore[misc]

        def upkeep(self) -> None:
            self.needs_upkeep = False  # type: ignore[misc]
            self.kept_up += 1

    store = Tidy()
    async with open_log(env, store) as log:
        await log.append(write("run/1"))
        assert store.kept_up == 0
        await trio.sleep(5)
        assert store.kept_up == 1
