"""Reading a log from its store: pages, places and snapshots, without an event loop.

Everything here is synchronous. ``perdure.eventlog.log`` calls it from threads; a process that
only looks and leaves calls it as it is.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from perdure.eventlog.cursor import Cursor, check_of, format_cursor, parse_cursor
from perdure.eventlog.errors import DamagedRecord, InvalidCursor
from perdure.eventlog.record import START, Mark, Record
from perdure.eventlog.snapshots import SnapshotKey
from perdure.eventlog.store import PAGE_RECORDS, Bounds, StoredPage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.eventlog.snapshots import Snapshots
    from perdure.eventlog.store import Store


class Page(NamedTuple):
    """Records, whether more of them exist, and the place up to which this answer is true."""

    records: Sequence[Record]
    more: bool
    mark: Mark
    cursor: str


class Reading:
    """Reads one store, with the help of snapshots."""

    def __init__(self, store: Store, snapshots: Snapshots) -> None:
        """Wrap an open store."""
        self.store = store
        self.snapshots = snapshots

    # Places

    def cursor(self, mark: Mark) -> str:
        """Give the cursor for a place in this log."""
        return format_cursor(self.store.generation, mark)

    def parsed(self, cursor: str) -> Cursor:
        """Take a cursor of this log apart, or raise InvalidCursor."""
        wanted = parse_cursor(cursor)
        if wanted.generation != self.store.generation:
            raise InvalidCursor("it belongs to another log, or to this one before a restore")
        return wanted

    def mark_of(self, wanted: Cursor) -> Mark | None:
        """Find the record that a cursor names. Whether it is the right one is not looked at."""
        return START if wanted.position == 0 else self.store.mark_at(wanted.position)

    def resolve(self, cursor: str) -> Mark:
        """Find the place that a cursor names, or raise InvalidCursor."""
        wanted = self.parsed(cursor)
        return matching(wanted, self.mark_of(wanted))

    # Pages

    def read_all(self, after: int, at: Mark | None, limit: int) -> Page:
        """Read records after a position, as the log was at a place."""
        return self.page(self.store.read_all(after, bounded(at, limit)), at)

    def read_scope(self, scope: str, after: int, at: Mark | None, limit: int) -> Page:
        """Read a scope's records after a position, as the log was at a place."""
        return self.page(self.store.read_scope(scope, after, bounded(at, limit)), at)

    def read_stream(self, stream: str, after: int, at: Mark | None, limit: int) -> Page:
        """Read a stream's records after a version, as the log was at a place."""
        return self.page(self.store.read_stream(stream, after, bounded(at, limit)), at)

    def read_streams(self, streams: Sequence[str], limit: int) -> list[Page | None]:
        """Read the first few records of each of several streams; None if one is damaged."""
        pages: list[Page | None] = []
        for stream in streams:
            try:
                pages.append(self.read_stream(stream, 0, None, limit))
            except DamagedRecord:
                pages.append(None)
        return pages

    def read_from_snapshot(
        self, stream: str, fold: str, at: Mark | None
    ) -> tuple[bytes | None, Page]:
        """Read a stream from its newest usable snapshot on, as the log was at a place.

        With a snapshot's state, the first record of the page is the one that the state ends with.
        Without one (None) the page is the stream's first.
        """
        upto = None if at is None else self.store.version_at(stream, at.position)
        key = SnapshotKey("stream", stream, fold, self.store.generation)
        return self._from_newest(key, upto, partial(self.read_stream, stream), at)

    def read_scope_from_snapshot(
        self, scope: str, fold: str, at: Mark | None
    ) -> tuple[bytes | None, Page]:
        """Read a scope from its newest usable snapshot on, as the log was at a place.

        With a snapshot's state, the first record of the page is the one that the state ends with.
        Without one (None) the page is the scope's first.
        """
        upto = None if at is None else at.position
        key = SnapshotKey("scope", scope, fold, self.store.generation)
        return self._from_newest(key, upto, partial(self.read_scope, scope), at)

    def _from_newest(
        self,
        key: SnapshotKey,
        upto: int | None,
        read: Callable[[int, Mark | None, int], Page],
        at: Mark | None,
    ) -> tuple[bytes | None, Page]:
        found = self.snapshots.newest(key, upto)
        if found is not None:
            page = read(found.number - 1, at, PAGE_RECORDS)
            if page.records and check_of(page.records[0].event_id) == found.check:
                return found.state, page
        return None, read(0, at, PAGE_RECORDS)

    def page(self, page: StoredPage, at: Mark | None) -> Page:
        """Say up to where a page is true."""
        if page.more:
            mark = page.records[-1].mark
        else:
            mark = page.head if at is None else min(page.head, at)
        return Page(page.records, page.more, mark, self.cursor(mark))


def matching(wanted: Cursor, mark: Mark | None) -> Mark:
    """Give the place that a cursor names if it is the one it was made for."""
    if mark is None:
        raise InvalidCursor("there is no such position in this log")
    if check_of(mark.event_id) != wanted.check:
        raise InvalidCursor("it does not match the record at its position")
    return mark


def bounded(at: Mark | None, limit: int) -> Bounds:
    """Say how far a page may reach."""
    if limit < 1:
        raise ValueError(f"a page of {limit} records")
    return Bounds(None if at is None else at.position, min(limit, PAGE_RECORDS))
