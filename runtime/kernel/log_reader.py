"""Reading a log beside its writer, or without one: quickly, and without an event loop.

The operations that read are coroutines, since in a server they wait for threads. Here the log
answers at once, so they never wait, and a call brings them to their end:

    with open_beside(DataDir(path)) as beside:
        page = beside.call("runs.list", {"limit": 10})
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from perdure.eventlog.reading import Page, Reading
from perdure.eventlog.snapshots import SnapshotFile
from perdure.eventlog.sqlite import SqliteStore
from perdure.eventlog.store import PAGE_RECORDS
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.operations import Operations
from perdure.runtime.kernel.principal import LOCAL, Principal
from perdure.runtime.runs.index_overlay import read_directory
from perdure.runtime.runs.queries import RunQueries
from perdure.runtime.runs.reader import RunReader

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
    from typing import TypeVarTuple, Unpack

    from perdure.eventlog.record import Mark
    from perdure.eventlog.snapshots import Snapshots
    from perdure.eventlog.store import Store
    from perdure.runtime.kernel.data_directory import DataDir
    from perdure.runtime.runs.index import Listed, RunFilter, RunTables

    Arguments = TypeVarTuple("Arguments")

Result = TypeVar("Result")

ID_LENGTH: Final = 36  # of a whole run id
FEW: Final = 5  # candidates named when a beginning fits several


def completed(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Bring a coroutine to its end that never waits for anything."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    coroutine.close()
    name = getattr(coroutine, "__qualname__", "this")
    raise RuntimeError(f"{name} waits, and there is nothing to wait for")


class BesideLog:
    """A log as its readers know it, whose methods never wait."""

    def __init__(self, store: Store, snapshots: Snapshots) -> None:
        """Read an open store."""
        self.store = store
        self._reading = Reading(store, snapshots)

    def cursor(self, mark: Mark) -> str:
        """Give the cursor for a place in this log."""
        return self._reading.cursor(mark)

    async def head(self) -> Mark:
        """Give the place of the newest record."""
        return self.store.head()

    async def resolve(self, cursor: str) -> Mark:
        """Find the place that a cursor names, or raise InvalidCursor."""
        return self._reading.resolve(cursor)

    async def mark_before(self, instant: int) -> Mark:
        """Find the last record committed at or before a UTC nanosecond."""
        return self.store.mark_before(instant)

    async def read_stream(
        self, stream: str, *, after: int = 0, at: Mark | None = None, limit: int = PAGE_RECORDS
    ) -> Page:
        """Read a stream's records after a version, as the log was at a place."""
        return self._reading.read_stream(stream, after, at, limit)

    async def read_from_snapshot(
        self, stream: str, fold: str, *, at: Mark | None = None
    ) -> tuple[bytes | None, Page]:
        """Read a stream from its newest usable snapshot on, as the log was at a place."""
        return self._reading.read_from_snapshot(stream, fold, at)

    async def in_thread(
        self,
        fn: Callable[[Unpack[Arguments]], Result],
        *args: *Arguments,
    ) -> Result:
        """Call a function of the store, in this thread."""
        return fn(*args)


class Beside:
    """The operations that read, on a log that somebody else may be writing."""

    def __init__(self, log: BesideLog, data: DataDir) -> None:
        """Read an open log. The directory of its runs is read when somebody asks for a list."""
        self.log = log
        self._data = data
        self._directory: RunTables | None = None
        self._operations = Operations(RunQueries(log, self, RunReader(log)))

    def call(self, name: str, args: Mapping[str, Any], principal: Principal = LOCAL) -> Any:  # noqa: ANN401
        """Do what is asked for; whatever goes wrong is an OperationError."""
        return completed(self._operations.call(principal, name, args))

    def run_id(self, beginning: str, principal: Principal = LOCAL) -> str:
        """Give the id of the one run that begins so, or raise RUN_NOT_FOUND."""
        if len(beginning) >= ID_LENGTH:
            return beginning
        found = self._listed().beginning_with(beginning, principal.tenant, FEW + 1)
        if len(found) == 1:
            return found[0]
        if not found:
            raise OperationError("RUN_NOT_FOUND", f"there is no run {beginning!r}")
        few = "\n".join(f"  {run_id}" for run_id in found[:FEW])
        more = "\n  and more" if len(found) > FEW else ""
        raise OperationError(
            "RUN_NOT_FOUND", f"{beginning!r} fits several runs; give more of the id:\n{few}{more}"
        )

    async def list(
        self, where: RunFilter, *, before: int | None, at: Mark | None, limit: int
    ) -> tuple[Sequence[Listed], Mark]:
        """List runs, newest first, and say at which place in the log this is true."""
        true_at = at or await self.log.head()  # the directory, read after it, knows all up to there
        found = self._listed().runs(where, before=before, at=true_at.position, limit=limit)
        return found, true_at

    def close(self) -> None:
        """Let go of the directory."""
        if self._directory is not None:
            self._directory.close()

    def _listed(self) -> RunTables:
        """Give the directory as it is now: read once, for a program that looks once."""
        if self._directory is None:
            self._directory = read_directory(self._data.directory, self.log.store)
        return self._directory


@contextmanager
def open_beside(data: DataDir) -> Iterator[Beside]:
    """Open a log for reading, for the length of a block. Nothing is written."""
    with closing(SqliteStore.open_reader(data.log)) as store:
        snapshots = SnapshotFile(data.snapshots, writable=False)
        with closing(snapshots), closing(Beside(BesideLog(store, snapshots), data)) as beside:
            yield beside
