"""The event log: append, read, follow.

``EventLog`` ties a store, the group-commit writer and the shared tail together and keeps blocking
calls in threads of their own. ``open_log`` runs one:

    async with open_log(env, SqliteStore.open(path, env=env)) as log:
        receipt = await log.append(Append([StreamWrite("run/1", 0, [created])]))
        async for batch in await log.follow():
            ...
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from perdure.eventlog.cursor import check_of
from perdure.eventlog.env import FaultPoint
from perdure.eventlog.errors import DamagedRecord, LogClosed, Unavailable
from perdure.eventlog.filter import EVERYTHING, Filter
from perdure.eventlog.follow import Follow, FollowLimits
from perdure.eventlog.reading import Page, Reading, matching
from perdure.eventlog.record import START, Mark
from perdure.eventlog.snapshots import MemorySnapshots, Snapshot, SnapshotKey, Snapshots
from perdure.eventlog.store import PAGE_RECORDS, Bounds, StoredPage
from perdure.eventlog.tail import Tail, TailLimits
from perdure.eventlog.writer import Writer, WriterLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from typing import TypeVarTuple, Unpack

    from perdure.eventlog.append import Append, Receipt
    from perdure.eventlog.env import Env
    from perdure.eventlog.record import Record
    from perdure.eventlog.store import Store

    Arguments = TypeVarTuple("Arguments")

Result = TypeVar("Result")

READER_THREADS: Final = 4  # reads are short pages; more threads than cores would only queue
RECENT: Final = 1_000  # records in memory that are looked at rather than reading the store
POLL_INTERVAL: Final = 0.05  # how often a reading process looks for the writer's commits


class EventLog:
    """One log, as its writer or reading beside it."""

    def __init__(
        self,
        env: Env,
        store: Store,
        *,
        snapshots: Snapshots | None = None,
        writer_limits: WriterLimits | None = None,
        tail_limits: TailLimits | None = None,
    ) -> None:
        """Wrap an open store. Appends and live following need ``run`` to be running."""
        self.env = env
        self.store = store
        self.tail = Tail(store.head(), tail_limits)
        self.writer = Writer(env, store, self.tail, writer_limits)
        self._reading = Reading(store, snapshots or MemorySnapshots())
        self._tail_records = (tail_limits or TailLimits()).records
        self._held: dict[str, trio.Event] = {}  # scopes that an actor decides on
        self._readers = trio.CapacityLimiter(READER_THREADS)
        self._closed: str | None = None

    @property
    def generation(self) -> str:
        """The log's own random name, new after each restore."""
        return self.store.generation

    # Life

    @trio.lowlevel.enable_ki_protection  # whoever waits is told, whatever else happens
    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write (or, beside the writer, look for what it wrote) until ``finish`` or cancelled.

        A store that fails in the middle of a write ends this with OutcomeUnknown, after everyone
        who waits was told: stop the process, start again, refold.
        """
        try:
            if self.store.writable:
                await self.writer.run(task_status)
            else:
                task_status.started()
                await self._poll()
        except Exception as exc:
            self._closed = f"the log closed itself: {exc}"
            raise
        finally:
            self._closed = self._closed or "the log is closed"
            self.writer.finish()
            self.tail.wake()

    def raise_if_closed(self) -> None:
        """Raise LogClosed once the log no longer works."""
        if self._closed is not None:
            raise LogClosed(self._closed)

    # Writing

    async def append(self, append: Append, *, new_work: bool = False) -> Receipt:
        """Write records; return when they are on disk, or raise with nothing written.

        With ``new_work`` a full queue or a full disk refuses at once; without, the append waits.
        """
        self.raise_if_closed()
        if self._held:
            await self._wait_for_scopes(append)
        return await self.writer.append(append, new_work=new_work)

    @asynccontextmanager
    async def hold(self, scope: str) -> AsyncIterator[None]:
        """Let appends to a scope wait for the length of a block, but those that require it unmoved.

        For an actor that decides on its scope while others write there all the time. What was on
        its way already is written.
        """
        while scope in self._held:
            await self._held[scope].wait()
        self._held[scope] = trio.Event()
        try:
            yield
        finally:
            self._held.pop(scope).set()

    async def _wait_for_scopes(self, append: Append) -> None:
        waits_for_none = {required.scope for required in append.unmoved}
        for scope in {write.scope for write in append.writes} - waits_for_none:
            while scope in self._held:
                await self._held[scope].wait()

    # Places

    async def head(self) -> Mark:
        """Give the place of the newest record."""
        if self.store.writable:
            await trio.lowlevel.checkpoint()
            return self.tail.head
        return await self.in_thread(self.store.head)

    def cursor(self, mark: Mark) -> str:
        """Give the cursor for a place in this log."""
        return self._reading.cursor(mark)

    async def resolve(self, cursor: str) -> Mark:
        """Find the place that a cursor names, or raise InvalidCursor."""
        wanted = self._reading.parsed(cursor)
        mark = self.tail.find(wanted.position)
        if mark is None:
            mark = await self.in_thread(self._reading.mark_of, wanted)
        return matching(wanted, mark)

    async def mark_before(self, instant: int) -> Mark:
        """Find the last record committed at or before a UTC nanosecond: the log as it was then."""
        return await self.in_thread(self.store.mark_before, instant)

    # Reading

    async def read_all(
        self, *, after: int = 0, at: Mark | None = None, limit: int = PAGE_RECORDS
    ) -> Page:
        """Read records after a position, as the log was at a place."""
        return await self.in_thread(self._reading.read_all, after, at, limit)

    async def read_scope(
        self, scope: str, *, after: int = 0, at: Mark | None = None, limit: int = PAGE_RECORDS
    ) -> Page:
        """Read a scope's records after a position, as the log was at a place."""
        return await self.in_thread(self._reading.read_scope, scope, after, at, limit)

    def recent_in_scope(self, scope: str, after: int) -> Sequence[Record] | None:
        """Give a scope's records after a position from memory; None if they must be read."""
        return self.tail.after_in_scope(scope, after, RECENT)

    async def read_stream(
        self, stream: str, *, after: int = 0, at: Mark | None = None, limit: int = PAGE_RECORDS
    ) -> Page:
        """Read a stream's records after a version, as the log was at a place."""
        return await self.in_thread(self._reading.read_stream, stream, after, at, limit)

    async def read_streams(self, streams: Sequence[str], *, limit: int) -> list[Page | None]:
        """Read the first few records of each of several streams; None if one is damaged."""
        return await self.in_thread(self._reading.read_streams, streams, limit)

    async def read_where(self, where: Filter, after: int, bounds: Bounds) -> StoredPage:
        """Read a page by the index that suits a filter. The filter is not applied."""
        if where.only_stream is not None:
            return await self.in_thread(self._read_stream_after, where.only_stream, after, bounds)
        if where.only_scope is not None:
            return await self.in_thread(self.store.read_scope, where.only_scope, after, bounds)
        return await self.in_thread(self.store.read_all, after, bounds)

    async def follow(
        self,
        after: str | Mark | None = None,
        where: Filter = EVERYTHING,
        limits: FollowLimits | None = None,
    ) -> Follow:
        """Follow the log from a cursor, a place, or (None) its beginning."""
        self.raise_if_closed()
        start = await self.resolve(after) if isinstance(after, str) else after or START
        return Follow(self, start, where, limits)

    # Snapshots

    async def save_snapshot(
        self, stream: str, version: int, event_id: bytes, *, fold: str, state: bytes
    ) -> None:
        """Keep what a fold makes of a stream up to a version, so as not to fold it again."""
        key = SnapshotKey("stream", stream, fold, self.generation)
        await self._save(key, version, event_id, state)

    async def save_scope_snapshot(
        self, scope: str, position: int, event_id: bytes, *, fold: str, state: bytes
    ) -> None:
        """Keep what a fold makes of a scope up to a record of it, so as not to fold it again.

        Position and event id are those of the scope's newest record in the state, not of the head.
        """
        key = SnapshotKey("scope", scope, fold, self.generation)
        await self._save(key, position, event_id, state)

    async def read_from_snapshot(
        self, stream: str, fold: str, *, at: Mark | None = None
    ) -> tuple[bytes | None, Page]:
        """Read a stream from its newest usable snapshot on, as the log was at a place.

        With a snapshot's state, the first record of the page is the one that the state ends with.
        Without one (None) the page is the stream's first.
        """
        return await self.in_thread(self._reading.read_from_snapshot, stream, fold, at)

    async def read_scope_from_snapshot(
        self, scope: str, fold: str, *, at: Mark | None = None
    ) -> tuple[bytes | None, Page]:
        """Read a scope from its newest usable snapshot on, as the log was at a place.

        With a snapshot's state, the first record of the page is the one that the state ends with.
        Without one (None) the page is the scope's first. ``read_scope`` reads the pages after it.
        """
        return await self.in_thread(self._reading.read_scope_from_snapshot, scope, fold, at)

    # Inside

    async def in_thread(
        self,
        fn: Callable[[Unpack[Arguments]], Result],
        *args: *Arguments,
    ) -> Result:
        """Call a blocking function of the store in one of the log's reading threads."""
        self.raise_if_closed()
        return await self.env.run_sync(fn, *args, limiter=self._readers)

    async def _save(self, key: SnapshotKey, number: int, event_id: bytes, state: bytes) -> None:
        snapshot = Snapshot(key=key, number=number, check=check_of(event_id), state=state)
        await self.in_thread(self._reading.snapshots.save, snapshot)

    def _read_stream_after(self, stream: str, position: int, bounds: Bounds) -> StoredPage:
        return self.store.read_stream(stream, self.store.version_at(stream, position), bounds)

    async def _poll(self) -> None:
        """Beside the writer: bring its commits into the tail while somebody waits for them."""
        while True:
            await self.tail.watched()
            if self.env.faults is not None:
                await self.env.faults.reach(FaultPoint.POLL_READ)
            try:
                page = await self.in_thread(self.store.read_all, self.tail.head.position, Bounds())
            except Unavailable:
                await self.env.sleep(POLL_INTERVAL)
                continue
            except DamagedRecord:  # whoever follows reads it, and is told
                self.tail.skip_to(await self.in_thread(self.store.head))
                continue
            if page.head.position - self.tail.head.position > self._tail_records:
                self.tail.skip_to(page.head)
            else:
                self.tail.extend(page.records)
            if not page.more:
                await self.env.sleep(POLL_INTERVAL)


@asynccontextmanager
async def open_log(
    env: Env,
    store: Store,
    *,
    snapshots: Snapshots | None = None,
    writer_limits: WriterLimits | None = None,
    tail_limits: TailLimits | None = None,
) -> AsyncIterator[EventLog]:
    """Run a log for the length of a block. Appends that wait at its end are still written.

    On a full disk that can take until space is there: put a timeout around it to give up.
    """
    log = EventLog(
        env, store, snapshots=snapshots, writer_limits=writer_limits, tail_limits=tail_limits
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(log.run)
        yield log
        if store.writable:
            log.writer.finish()
        else:
            nursery.cancel_scope.cancel()
