from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from eventlog import (
    Append,
    DiskFull,
    EventLog,
    EventLogError,
    LogClosed,
    MemoryStore,
    OutcomeUnknown,
    Overloaded,
    ReadOnlyLog,
    Receipt,
    Record,
    StoreBusy,
    StoreFailed,
    StreamWrite,
    WriterLimits,
    WrongExpectedVersion,
    open_log,
)
from eventlog.store import Bounds
from eventlog.testing import example_event, example_record
from tests.eventlog.conftest import SteadyEnv


def write(stream: str, expected: int = 0) -> Append:
    """Append one event to one stream."""
    return Append([StreamWrite(stream, expected, [example_event()])])


class Caller:
    """A task that appends and keeps its answer."""

    def __init__(self, log: EventLog, append: Append, *, new_work: bool = False) -> None:
        """Nothing happens before ``run``."""
        self.log = log
        self.append = append
        self.new_work = new_work
        self.answer: Receipt | EventLogError | None = None
        self.answered_at: float | None = None
        self.scope = trio.CancelScope()

    @property
    def answered(self) -> bool:
        """Whether there is an answer."""
        return self.answer is not None

    async def run(self) -> None:
        """Append; keep the answer, and when it came."""
        with self.scope:
            try:
                self.answer = await self.log.append(self.append, new_work=self.new_work)
            except EventLogError as error:
                self.answer = error
            self.answered_at = trio.current_time()


async def start(nursery: trio.Nursery, *callers: Caller) -> None:
    """Start callers in this order."""
    for caller in callers:
        nursery.start_soon(caller.run)
        await trio.testing.wait_all_tasks_blocked()


class FailingStore(MemoryStore):
    """A store whose next commits fail as told."""

    def __init__(self) -> None:
        """Fail in no way."""
        super().__init__()
        self.error: Exception | None = None
        self.written_all_the_same = False

    def commit(self, records: Sequence[Record]) -> None:
        """Commit or fail."""
        if self.error is None or self.written_all_the_same:
            super().commit(records)
        if self.error is not None:
            raise self.error


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


async def test_a_failed_batch_takes_its_conflicts_back(
    autojump_clock: MockClock, env: SteadyEnv
) -> None:
    """If the winner was not written after all, the other caller gets the key."""
    store = FailingStore()
    async with open_log(env, store) as log, trio.open_nursery() as nursery:
        first = Caller(log, write("claim/1"), new_work=True)
        second = Caller(log, write("claim/1"))
        store.error = DiskFull("no space")
        await start(nursery, first, second)
        await trio.sleep(2.5)
        assert isinstance(first.answer, DiskFull)
        assert not second.answered
        store.error = None
        await trio.sleep(10)
        assert isinstance(second.answer, Receipt)


@pytest.mark.parametrize("error", [DiskFull("no space"), StoreBusy("locked")])
async def test_a_full_disk_refuses_new_work_and_keeps_accepted_work_waiting(
    autojump_clock: MockClock, env: SteadyEnv, error: EventLogError
) -> None:
    """Reads go on; when space returns the waiting appends are written, and new work too."""
    store = FailingStore()
    async with open_log(env, store) as log, trio.open_nursery() as nursery:
        await log.append(write("run/0"))
        store.error = error
        accepted, fresh = Caller(log, write("run/1")), Caller(log, write("run/2"), new_work=True)
        await start(nursery, accepted, fresh)
        await trio.sleep(30)
        assert not accepted.answered
        assert isinstance(fresh.answer, type(error))
        assert len((await log.read_all()).records) == 1
        with pytest.raises(type(error)):
            await log.append(write("run/3"), new_work=True)
        store.error = None
        await trio.sleep(30)
        assert isinstance(accepted.answer, Receipt)
        await log.append(write("run/3"), new_work=True)


async def test_a_full_disk_with_nothing_waiting_is_tried_again_by_new_work(
    autojump_clock: MockClock,
    env: SteadyEnv,
) -> None:
    """Nobody has to restart anything after space was freed."""
    store = FailingStore()
    async with open_log(env, store) as log:
        store.error = DiskFull("no space")
        for _ in range(3):
            with pytest.raises(DiskFull):
                await log.append(write("run/1"), new_work=True)
        store.error = None
        await log.append(write("run/1"), new_work=True)


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


@pytest.mark.parametrize("written", [True, False])
async def test_an_unknown_outcome_closes_the_log(
    autojump_clock: MockClock, env: SteadyEnv, written: bool
) -> None:
    """Whoever was being written hears 'unknown', whoever waited hears 'closed', and that is all."""
    store = FailingStore()
    store.error = StoreFailed("the disk is on fire")
    store.written_all_the_same = written
    doubtful: list[Caller] = []
    with pytest.raises(BaseExceptionGroup) as ended:  # noqa: PT012 - the block is the life of a log
        async with open_log(env, store) as log, trio.open_nursery() as nursery:
            doubtful = [Caller(log, write("run/1")), Caller(log, write("run/2"))]
            await start(nursery, *doubtful)
            await trio.sleep_forever()
    assert ended.group_contains(OutcomeUnknown, match="on fire", depth=1)
    assert isinstance(doubtful[0].answer, OutcomeUnknown)
    assert type(doubtful[1].answer) is LogClosed
    with pytest.raises(LogClosed, match="on fire"):
        await log.append(write("run/3"))
    with pytest.raises(LogClosed, match="on fire"):
        await log.read_all()
    with pytest.raises(LogClosed, match="on fire"):
        await log.follow()


async def test_an_append_repeated_after_an_unknown_outcome_is_written_once(
    autojump_clock: MockClock,
    env: SteadyEnv,
) -> None:
    """The event ids tell that the first try had succeeded."""
    store = FailingStore()
    store.error, store.written_all_the_same = StoreFailed("reply lost"), True
    append = write("run/1")
    with pytest.raises(BaseExceptionGroup):
        async with open_log(env, store) as log:
            await log.append(append)
    store.error = None
    async with open_log(env, store) as log:
        receipt = await log.append(append)
        assert [r.position for r in receipt.records] == [1]
        assert store.head().position == 1


async def test_the_backstop_is_believed_only_after_a_second_look(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """If the store knows more than the cache, everything is looked up again and judged anew."""
    async with open_log(env, store) as log, trio.open_nursery() as nursery:
        await log.append(write("run/1"))
        store.commit([example_record(2, "run/1", 2)])  # behind the writer's back
        stale, fine = Caller(log, write("run/1", 1)), Caller(log, write("run/2"))
        await start(nursery, stale, fine)
        await trio.sleep(10)
        assert isinstance(stale.answer, WrongExpectedVersion)
        assert stale.answer.actual == 2
        assert isinstance(fine.answer, Receipt)


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
