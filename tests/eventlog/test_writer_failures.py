from __future__ import annotations

import subprocess
import sys

import pytest
import trio
from trio.testing import MockClock

from perdure.eventlog import (
    DiskFull,
    EventLogError,
    LogClosed,
    MemoryStore,
    OutcomeUnknown,
    Receipt,
    StoreBusy,
    StoreFailed,
    WrongExpectedVersion,
    open_log,
)
from perdure.eventlog.errors import StoreConflict
from perdure.eventlog.ledger import StreamState
from perdure.eventlog.testing import example_record
from tests.eventlog.callers import Caller, FailingStore, start, write
from tests.eventlog.conftest import SteadyEnv


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


async def test_a_full_disk_is_known_until_there_is_room(
    autojump_clock: MockClock, env: SteadyEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while nothing waits to be written, and if it was full before anything was."""
    store = FailingStore()

    def check_room() -> None:
        if store.error is not None:
            raise store.error

    monkeypatch.setattr(store, "check_room", check_room)
    async with open_log(env, store) as log:
        store.error = full = DiskFull("no space")
        with pytest.raises(DiskFull):
            await log.append(write("run/1"), new_work=True)
        known = []
        for _ in range(2):
            await trio.sleep(30)
            known.append(log.writer.stalled)
            store.error = None
            await trio.sleep(6)  # a thread takes two seconds here
            known.append(log.writer.stalled)
            store.error = full
            await log.writer.check_room()
        assert known == [full, None, full, None]


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
        others = [example_record(n, "run/1", n) for n in (2, 3)]
        store.commit(others)  # behind the writer's back
        follow = await log.follow()
        stale, fine = Caller(log, write("run/1", 1)), Caller(log, write("run/2"))
        await start(nursery, stale, fine)
        await trio.sleep(10)
        assert isinstance(stale.answer, WrongExpectedVersion)
        assert stale.answer.actual == 3
        assert isinstance(fine.answer, Receipt)
        seen: list[int] = []
        while len(seen) < 4:
            seen.extend(r.position for r in (await follow.next_batch()).records)
        assert seen == [1, 2, 3, 4]


async def test_a_conflict_over_ones_own_records_is_a_success(
    autojump_clock: MockClock, env: SteadyEnv
) -> None:
    """A store that wrote and then says conflict is read again; nobody misses the records."""
    store = FailingStore()
    async with open_log(env, store) as log:
        follow = await log.follow()
        store.error, store.written_all_the_same = StoreConflict("reply mixed up"), True
        store.once = True
        receipt = await log.append(write("run/1"))
        assert receipt.mark == await log.head() == store.head()
        assert [r.position for r in (await follow.next_batch()).records] == [1]


async def test_a_cancelled_append_does_not_wait_for_a_full_disk(
    autojump_clock: MockClock, env: SteadyEnv
) -> None:
    """Cancelled while the disk was trying, it goes when the try has failed."""
    store = FailingStore()
    store.error = DiskFull("no space")
    async with open_log(env, store) as log:
        with trio.move_on_after(0.5) as scope:  # in the middle of the first try
            await log.append(write("run/1"))
        assert scope.cancelled_caught
        assert trio.current_time() < 5
        store.error = None
    assert store.head().position == 0


async def test_a_store_that_cannot_be_read_has_written_nothing(
    autojump_clock: MockClock, env: SteadyEnv
) -> None:
    """Before anything is written the outcome is known: nothing was."""

    class Unreadable(MemoryStore):
        def stream_state(self, stream: str) -> StreamState:
            raise StoreFailed("cannot look")

    caller: Caller | None = None
    with pytest.raises(BaseExceptionGroup):  # noqa: PT012 - the life of a log
        async with open_log(env, Unreadable()) as log, trio.open_nursery() as nursery:
            caller = Caller(log, write("run/1"))
            await start(nursery, caller)
            await trio.sleep_forever()
    assert caller is not None
    assert type(caller.answer) is LogClosed
    assert "nothing was written" in str(caller.answer)


INTERRUPTED = """
import signal, trio
import perdure.eventlog.writer as writer
from perdure.eventlog import Append, MemoryStore, RealEnv, StreamWrite, open_log
from perdure.eventlog.testing import example_event

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
answer = writer._answer

def interrupt_once(waiting, given):
    writer._answer = answer
    signal.raise_signal(signal.SIGINT)
    answer(waiting, given)

async def main():
    async with open_log(RealEnv(), MemoryStore()) as log, trio.open_nursery() as nursery:
        writer._answer = interrupt_once
        for number in range(3):
            append = Append([StreamWrite(f"run/{number}", 0, [example_event()])])
            nursery.start_soon(log.append, append)

trio.run(main)
"""


def test_an_interrupt_while_answers_are_given_ends_the_program() -> None:
    """Ctrl-C at the worst moment leaves nobody waiting for an answer that never comes."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, timeout=30, check=False
    )
    assert b"KeyboardInterrupt" in done.stderr
