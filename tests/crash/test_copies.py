from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio

from perdure.eventlog import EventLogError, SqliteStore
from perdure.eventlog.sqlite.store import BACKUP, LOG
from tests.crash.child import Child
from tests.crash.soundness import LOG_NAME, History, read, verified
from tests.crash.strace import Strace
from tests.programs import require

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from _pytest.mark import ParameterSet


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a log of a few pages, and a backup of it."""
    directory = tmp_path_factory.mktemp("original")
    with Child("writing_child", directory, "--appends", 150) as child:
        assert child.wait() == 0
    with Child("copying_child", "back-up", directory / LOG_NAME, directory / BACKUP) as child:
        assert child.wait() == 0
    return directory


def soak(values: Iterable[str]) -> list[ParameterSet]:
    """Mark parameters for the long version of a test."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]


TASKS: Final = ("back-up", "restore")


class Copying:
    """A backup being made of a log, or a log being made of a backup."""

    def __init__(self, original: Path, scratch: Path, task: str) -> None:
        self.target = scratch / "target"
        self._scratch = scratch
        self._task = task
        self._source = original / (LOG_NAME if task == "back-up" else BACKUP)
        self._history = History.of(original / LOG_NAME)

    def run(self) -> int:
        """Copy; give the exit status."""
        with Child("copying_child", self._task, self._source, self.target) as child:
            return child.wait()

    def run_into(self, fault: str, *, file: str | None = None) -> int:
        """Copy with a fault, perhaps in one file only; give the exit status."""
        require("strace")
        only = None if file is None else self._scratch / file
        calls = [fault.partition(":")[0]]
        strace = Strace(self._scratch / "trace").command(calls, inject=fault, only=only)
        arguments = (self._task, self._source, self.target)
        with Child("copying_child", *arguments, under=strace) as child:
            return child.wait()

    def problems(self) -> list[str]:
        """Say what is wrong with the copy."""
        kind = BACKUP if self._task == "back-up" else LOG
        try:
            store = SqliteStore.open_reader(self.target, kind=kind)
        except EventLogError as exc:
            return [repr(exc)]
        try:
            if [record.event_id for record in read(store)] != self._history.event_ids:
                return [f"{self.target.name} ends at position {store.head().position}"]
            return trio.run(verified, store)
        finally:
            store.close()

    def finish(self) -> None:
        """Copy again if there is no copy, after which nothing but the copy is left."""
        if not self.target.exists():
            assert self.run() == 0
            assert not list(self._scratch.glob("*.part*"))


@pytest.fixture(params=TASKS)
def copying(request: pytest.FixtureRequest, original: Path, tmp_path: Path) -> Copying:
    """Each kind of copy."""
    return Copying(original, tmp_path, request.param)


KILLS: Final = ("pwrite64:60", "fdatasync:8", "link,linkat:1", "unlink:7")
MORE_KILLS: Final = (
    *("pwrite64:5", "pwrite64:200", "pwrite64:400", "pwrite64:700", "fdatasync:2", "fdatasync:5"),
    *("fsync:1", "fsync:2", "fsync:3", *(f"unlink:{n}" for n in range(1, 7))),
)


@pytest.mark.parametrize("moment", [*KILLS, *soak(MORE_KILLS)])
def test_a_copy_that_is_killed_is_complete_or_absent(copying: Copying, moment: str) -> None:
    """A backup or a restored log has its name only if it is all there; else one tries again."""
    call, _, when = moment.partition(":")
    copying.run_into(f"{call}:signal=KILL:when={when}")
    copying.finish()
    assert copying.problems() == []


FAULTS: Final = (
    "target.part-wal pwrite64:error=ENOSPC:when=100+",
    "target.part pwrite64:error=ENOSPC:when=2+",  # the first after its header: the checkpoint
    "target.part pwrite64:error=EIO:when=1",  # the header itself, once
    "target.part fdatasync:error=EIO:when=2+",
)
MORE_FAULTS: Final = [
    f"{file} {call}:error={error}:when={when}"
    for file in ("target.part", "target.part-wal")
    for call in ("pwrite64", "fdatasync", "fsync", "ftruncate")
    for error in ("EIO", "ENOSPC")
    for when in ("1", "2", "3", "1+", "3+")
]


@pytest.mark.parametrize("fault", [*FAULTS, *soak(MORE_FAULTS)])
def test_a_copy_on_a_disk_that_fails_is_complete_or_absent(copying: Copying, fault: str) -> None:
    """A copy that could not be written to its end is an error, and never gets its name."""
    file, _, injected = fault.partition(" ")
    succeeded = copying.run_into(injected, file=file) == 0
    assert copying.target.exists() or not succeeded
    copying.finish()
    assert copying.problems() == []
