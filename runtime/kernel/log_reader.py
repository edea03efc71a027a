"""Reading a log beside its writer, or without one: quickly, and without an event loop.

The operations that read are coroutines, since in a server they wait for threads. Here the log
answers at once, so they never wait, and ``completed`` brings them to their end:

    with open_reader(DataDir(path), features) as reader:
        page = completed(reader.operations.call(LOCAL, "runs.list", {"limit": 10}))
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, TypeVar

from perdure.eventlog.reading import Page, Reading
from perdure.eventlog.snapshots import SnapshotFile
from perdure.eventlog.sqlite import SqliteStore
from perdure.eventlog.store import PAGE_RECORDS
from perdure.runtime.kernel.listing_overlay import StoredListing
from perdure.runtime.kernel.operations import Operations, operations_of
from perdure.runtime.kernel.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVarTuple, Unpack

    from perdure.eventlog.record import Mark
    from perdure.eventlog.snapshots import Snapshots
    from perdure.eventlog.store import Store
    from perdure.runtime.kernel.actor_reader import Readable
    from perdure.runtime.kernel.data_directory import DataDir
    from perdure.runtime.kernel.features import Features
    from perdure.runtime.kernel.listing import Listing

    Arguments = TypeVarTuple("Arguments")

Result = TypeVar("Result")


class ReadableLog:
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

    async def read_scope(
        self, scope: str, *, after: int = 0, at: Mark | None = None, limit: int = PAGE_RECORDS
    ) -> Page:
        """Read a scope's records after a position, as the log was at a place."""
        return self._reading.read_scope(scope, after, at, limit)

    async def read_scope_from_snapshot(
        self, scope: str, fold: str, *, at: Mark | None = None
    ) -> tuple[bytes | None, Page]:
        """Read a scope from its newest usable snapshot on, as the log was at a place."""
        return self._reading.read_scope_from_snapshot(scope, fold, at)

    async def in_thread(
        self,
        fn: Callable[[Unpack[Arguments]], Result],
        *args: *Arguments,
    ) -> Result:
        """Call a function of the store, in this thread."""
        return fn(*args)


class LogReader:
    """The features of a log that another process may be writing, as they read it."""

    def __init__(
        self, log: Readable, data: DataDir, features: Features, settings: Settings | None = None
    ) -> None:
        """Read an open log. A listing is read when somebody asks for a list."""
        self.log = log
        self.settings = settings or Settings()
        self._data = data
        self._listings: dict[str, StoredListing] = {}
        self.parts = {feature.name: feature.reader(self) for feature in features}
        self.services = [service for part in self.parts.values() for service in part.services]

    @property
    def operations(self) -> Operations:
        """The operations that read."""
        return Operations(operations_of(*map(type, self.services)), self.services)

    def listing(self, listing: Listing) -> StoredListing:
        """Give a listing, which is read when it is asked."""
        path = self._data.listing(listing.name)
        stored = StoredListing(listing, path, self.log.store)
        return self._listings.setdefault(listing.name, stored)

    def close(self) -> None:
        """Close all listings."""
        for listing in self._listings.values():
            listing.close()


@contextmanager
def open_files(data: DataDir) -> Iterator[tuple[Store, Snapshots]]:
    """Open the files of a log for reading; one that is missing is read as an empty log."""
    with (
        closing(SqliteStore.open_reader(data.log) if data.log.exists() else _nothing()) as store,
        closing(SnapshotFile(data.snapshots, writable=False)) as snapshots,
    ):
        yield store, snapshots


def _nothing() -> Store:
    from perdure.eventlog.memory import MemoryStore  # noqa: PLC0415 - hardly ever needed

    return MemoryStore(writable=False)


@contextmanager
def open_reader(
    data: DataDir, features: Features, settings: Settings | None = None
) -> Iterator[LogReader]:
    """Open a log for reading, for the length of a block. Nothing is written."""
    with open_files(data) as files:
        log = ReadableLog(*files)
        with closing(LogReader(log, data, features, settings)) as reader:
            yield reader
