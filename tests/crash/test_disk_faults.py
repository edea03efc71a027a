from __future__ import annotations

import subprocess
import threading
import time
from typing import TYPE_CHECKING, Final

import pytest
import trio

from perdure.eventlog import (
    Append,
    DiskFull,
    EventLog,
    EventLogError,
    LogLocked,
    MemoryStore,
    RealEnv,
    Receipt,
    SqliteStore,
    StreamWrite,
    open_log,
)
from tests.crash import workload
from tests.crash.answers import Answer, heard, unsettled, with_answer
from tests.crash.child import PATIENCE, Child
from tests.crash.soundness import LOG_NAME, problems, read
from tests.crash.strace import Strace
from tests.crash.writing_child import LOG_FAILED
from tests.programs import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from _pytest.mark import ParameterSet

    from perdure.eventlog import Record

# A real full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


class Filler:
    """A file that takes all the space there is."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "filler"

    def fill(self) -> None:
        """Leave no byte free."""
        with self._path.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue

    def free(self) -> None:
        """Give the space back."""
        self._path.unlink()


async def append(log: EventLog, stream: str, *, new_work: bool = False) -> Receipt:
    """Append 40 events as the first of a stream: more than fits into space left by chance."""
    ids = [log.env.new_id().bytes for _ in range(40)]
    made = Append([StreamWrite(stream, 0, workload.events(ids))])
    return await log.append(made, new_work=new_work)


async def test_a_full_disk_refuses_new_work_and_loses_nothing(small_disk: Path) -> None:
    """On a full disk new work is refused, accepted work waits, reads go on; space ends it."""
    env = RealEnv()
    store = SqliteStore.open(small_disk / LOG_NAME, env=env)
    filler = Filler(small_disk)
    receipts: list[Receipt] = []

    async def append_and_keep(log: EventLog, stream: str) -> None:
        receipts.append(await append(log, stream))

    async with open_log(env, store) as log:
        await append_and_keep(log, "before")
        filler.fill()
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(append_and_keep, log, f"accepted/{number}")
                await trio.sleep(0.1)
                for number in range(5):
                    with pytest.raises(DiskFull):
                        await append(log, f"new/{number}", new_work=True)
                    assert len((await log.read_stream("before")).records) == 40
                assert len(receipts) == 1
                filler.free()
        receipts.append(await append(log, "after", new_work=True))
        kept = {record.event_id for receipt in receipts for record in receipt.records}
    store.close()
    assert await trio.to_thread.run_sync(problems, small_disk / LOG_NAME, []) == []
    store = SqliteStore.open(small_disk / LOG_NAME, env=env)
    there = {record.event_id for record in read(store) if not record.stream.startswith("after/")}
    store.close()
    assert there == kept


def test_a_log_on_a_full_disk_can_be_opened_once_there_is_space(small_disk: Path) -> None:
    """Opening a log where no space is left fails, and leaves nothing behind that blocks later."""
    filler = Filler(small_disk)
    filler.fill()
    with pytest.raises((EventLogError, OSError)):
        SqliteStore.open(small_disk / LOG_NAME, env=RealEnv())
    filler.free()
    assert problems(small_disk / LOG_NAME, []) == []


class FullStore(MemoryStore):
    """A store that takes its time to find that there is no space."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.answer = threading.Event()

    def commit(self, records: Sequence[Record]) -> None:
        """Wait to be told, then refuse."""
        self.asked.set()
        assert self.answer.wait(PATIENCE)
        raise DiskFull("the disk is full")


async def test_an_append_can_be_given_up_while_the_disk_is_full() -> None:
    """Who gives up at the very moment of a try is let go when that has failed."""
    store = FullStore()
    with trio.move_on_after(5) as deadline:
        async with open_log(RealEnv(), store) as log, trio.open_nursery() as nursery:
            nursery.start_soon(append, log, "patient")
            await trio.to_thread.run_sync(store.asked.wait)
            nursery.cancel_scope.cancel()
            trio.lowlevel.current_trio_token().run_sync_soon(store.answer.set)
    assert not deadline.cancelled_caught


# Calls that fail


class Faulty:
    """A writer whose system calls fail as asked, and what is left of its log."""

    def __init__(self, directory: Path) -> None:
        require("strace")
        self._directory = directory
        self.path = directory / LOG_NAME
        self.lines: list[bytes] = []

    def write(self, call: str, fault: str, *options: object) -> int:
        """Write with a fault; give the exit status."""
        strace = Strace(self._directory / "trace").command([call], inject=f"{call}:{fault}")
        calm = ("--asks", "--appends", 25, "--checkpoint-bytes", 1_000_000, *options)
        with Child("writing_child", self._directory, *calm, under=strace) as child:
            code = child.wait()
            self.lines += child.lines
        return code

    def answered(self, *answers: Answer) -> set[bytes]:
        """The events with such an answer."""
        return with_answer(heard(self.lines), *answers)

    def repeat(self) -> None:
        """Make the appends without an answer again; all are recognised or written now."""
        left = self._directory / "left"
        left.write_bytes(b"".join(self.lines))
        with Child("writing_child", self._directory, "--repeat", left, "--appends", 1) as child:
            assert child.wait() == 0
            self.lines += child.lines

    def problems(self) -> list[str]:
        """What is wrong with the log now."""
        return problems(self.path, heard(self.lines))


@pytest.fixture
def faulty(tmp_path: Path) -> Faulty:
    """A log that exists, with a writer about to have bad luck."""
    with Child("writing_child", tmp_path, "--appends", 1) as child:
        assert child.wait() == 0
    return Faulty(tmp_path)


def several(quick: Iterable[int], slow: Iterable[int]) -> list[ParameterSet]:
    """Which call is to fail: a few for every day, many for the soak."""
    marks = [pytest.param(when, marks=pytest.mark.soak) for when in slow if when not in quick]
    return [*(pytest.param(when) for when in quick), *marks]


SYNCS: Final = ["EIO:when=1", "EIO:when=4", "EIO:when=15", "EIO:when=6+", "ENOSPC:when=5"]
# The second is that of the directory, which SQLite makes for good measure: the log has done it.
MORE_SYNCS: Final = [f"EIO:when={n}{more}" for n in range(3, 25) for more in ("", "+")]


@pytest.mark.parametrize(
    "fault", [*SYNCS, *(pytest.param(fault, marks=pytest.mark.soak) for fault in MORE_SYNCS)]
)
def test_a_failed_sync_ends_the_log(faulty: Faulty, fault: str) -> None:
    """After a sync failed nothing more is acknowledged, and repeating an append is safe."""
    assert faulty.write("fdatasync", f"error={fault}") == LOG_FAILED
    check_the_end(faulty)


@pytest.mark.parametrize("when", several((15, 40), range(16, 100)))
def test_a_failed_write_ends_the_log(faulty: Faulty, when: int) -> None:
    """After a write failed nothing more is acknowledged, and repeating an append is safe."""
    assert faulty.write("pwrite64", f"error=EIO:when={when}") == LOG_FAILED
    check_the_end(faulty)


def test_a_quota_is_not_a_full_disk(faulty: Faulty) -> None:
    """A file that may not grow (EFBIG) is a failed write, not a disk that will have space again."""
    assert faulty.write("getpid", "delay_enter=0", "--largest-file", 300_000) == LOG_FAILED
    check_the_end(faulty)
    assert faulty.answered(Answer.UNKNOWN)


def check_the_end(faulty: Faulty) -> None:
    """Check what a log that closed itself said and left, and that its writer can go on."""
    answers = [answer for answer, _ in heard(faulty.lines)]
    end = next(i for i, answer in enumerate(answers) if answer is not Answer.ACK)
    assert set(answers[end:]) <= {Answer.UNKNOWN, Answer.CLOSED}
    assert faulty.problems() == []
    unknown = {e.event_id for a in unsettled(faulty.lines) for w in a.writes for e in w.events}
    assert unknown == faulty.answered(Answer.UNKNOWN)
    faulty.repeat()
    assert unknown <= faulty.answered(Answer.ACK, Answer.CONFLICT)
    assert faulty.problems() == []


@pytest.mark.parametrize("when", several((15, 40), range(16, 100)))
def test_a_disk_that_is_full_for_an_instant_is_not_noticed(faulty: Faulty, when: int) -> None:
    """Accepted appends wait until there is space again, and all are acknowledged."""
    assert faulty.write("pwrite64", f"error=ENOSPC:when={when}") == 0
    assert {answer for answer, _ in heard(faulty.lines)} == {Answer.ACK}
    assert faulty.problems() == []


@pytest.mark.parametrize("when", several((15, 40), range(16, 60, 4)))
def test_a_disk_that_stays_full_refuses_and_breaks_nothing(faulty: Faulty, when: int) -> None:
    """New work is refused, who stops waiting has written nothing, and the log ends in peace."""
    options = ("--appends", 6, "--patience", 0.2, "--new-work", 0.5)
    assert faulty.write("pwrite64", f"error=ENOSPC:when={when}+", *options) == 0
    assert faulty.answered(Answer.FULL)
    assert faulty.answered(Answer.GIVEN_UP)
    assert faulty.problems() == []


@pytest.mark.parametrize("call", ["fsync", "fdatasync", "pwrite64", "ftruncate"])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_a_log_that_cannot_be_made_can_be_made_later(tmp_path: Path, call: str, error: str) -> None:
    """A fault while a new log is made is an error, and the next start makes the log."""
    faulty = Faulty(tmp_path)
    assert faulty.write(call, f"error={error}:when=1+") != 0
    assert heard(faulty.lines) == []
    assert faulty.problems() == []


# Two processes


def test_a_second_writer_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    """Whoever opens a log that is being written learns the writer's pid; kill -9 frees the log."""
    path = tmp_path / LOG_NAME
    with Child("writing_child", tmp_path, "--appends", 0, "--pause", 0.01) as child:
        child.wait_for_ack()
        with pytest.raises(LogLocked, match=f"process {child.pid};") as refused:
            SqliteStore.open(path, env=RealEnv())
        assert refused.value.pid == child.pid
        child.kill()
        assert problems(path, child.answers) == []


def test_a_reader_beside_the_writer_sees_every_record_in_order(tmp_path: Path) -> None:
    """A process that follows beside the writer sees all that is acknowledged, once, in order."""
    options = ("--appends", 0, "--pause", 0.01, "--checkpoint-bytes", 200_000)
    with Child("writing_child", tmp_path, *options) as writer:
        writer.wait_for_ack()
        with Child("reading_child", tmp_path / LOG_NAME) as reader:
            time.sleep(1.5)
            writer.kill()
            acknowledged = with_answer(writer.answers, Answer.ACK)
            deadline = time.monotonic() + PATIENCE
            while not acknowledged <= set(seen(reader)) and time.monotonic() < deadline:
                time.sleep(0.05)
    assert len(acknowledged) > 100
    assert acknowledged <= set(seen(reader))
    store = SqliteStore.open(tmp_path / LOG_NAME, env=RealEnv())
    written = [record.event_id for record in read(store)]
    store.close()
    assert seen(reader) == written[: len(seen(reader))]


def seen(reader: Child) -> list[bytes]:
    """The event ids that a reader has seen."""
    return [bytes.fromhex(line.split()[2].decode()) for line in reader.lines]
