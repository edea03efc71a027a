"""The SQLite store: records in one table, found by position, scope, stream and commit time."""

from __future__ import annotations

import logging
import sqlite3
from typing import TYPE_CHECKING, Any, Final

from eventsourcing.persistence import IntegrityError, StoredEvent
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteCursor

from perdure.eventlog.errors import (
    DiskFull,
    LogCutShort,
    LogUnsupported,
    ReadOnlyLog,
    StoreBusy,
    StoreFailed,
)
from perdure.eventlog.ledger import NO_STREAM, StreamState
from perdure.eventlog.private import make_private
from perdure.eventlog.record import START, Mark, Record, foreign_record
from perdure.eventlog.sqlite import schema
from perdure.eventlog.sqlite.connection import BUSY_SECONDS, Datastore, classified
from perdure.eventlog.sqlite.file import (
    PAGE,
    has_wal,
    make_durable,
    refuse_foreign,
    shm_of,
    stands_still,
    sync_directory,
    wal_of,
)
from perdure.eventlog.sqlite.format import create_if_empty, read_about, upgrade
from perdure.eventlog.sqlite.lock import WriterLock, holder_of
from perdure.eventlog.sqlite.pages import Pages, mark
from perdure.eventlog.sqlite.reserve import Reserve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from perdure.eventlog.env import Env
    from perdure.eventlog.store import Bounds, StoredPage, Witness

LOG: Final = "log"
BACKUP: Final = "backup"
CHECKPOINT_BYTES: Final = 4 << 20
WAL_LIMIT: Final = (
    12 << 20
)  # below 16 MiB SQLite's index of it fits into one piece, made at opening
_CHECKPOINT_PATIENCE: Final = 500  # milliseconds for readers to finish; appends wait that long
_LAST: Final = (1 << 63) - 1
_NOT_CLOSED: Final = (
    "{} was not closed in good order, and nothing can be written where it lies; copy its directory"
    " to another disk and read it there"
)
_log = logging.getLogger("perdure.log")


class SqliteStore(SQLiteApplicationRecorder):
    """A log in one SQLite file. See ``perdure.eventlog.store.Store`` for the methods' promises."""

    def __init__(
        self, path: Path, datastore: Datastore, lock: WriterLock | None, *, writable: bool
    ) -> None:
        """Use ``open``, ``open_reader`` or ``create`` instead."""
        super().__init__(datastore, events_table_name=schema.EVENTS)
        self.datastore: Datastore = datastore
        self.path = path
        self.writable = writable
        self._lock = lock
        self._reserve = Reserve(path)
        self._written = 0  # bytes since the last checkpoint, roughly
        self._complained = False  # about a write-ahead log that grows
        about = read_about(datastore, path)
        self.generation, self.kind, self.unchecked = about.generation, about.kind, about.unchecked
        self._pages = Pages(path, about)

    # Opening

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        env: Env,
        lock: WriterLock | None = None,
        witness: Callable[[str], Witness | None] = lambda _generation: None,
    ) -> SqliteStore:
        """Open a log as its one writer; make it if there is none.

        ``witness`` tells how far the log of a generation has come. One that ends before that is
        refused before anything is written to it.
        """
        path = path.resolve()
        refuse_foreign(path)
        lock = lock or WriterLock(path)
        try:
            Reserve(path).release()
            make_durable(wal_of(path))
            return cls._opened(path, env, lock, LOG, witness)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open_reader(cls, path: Path, *, kind: str = LOG) -> SqliteStore:
        """Open a log for reading, beside its writer or without one."""
        path = path.resolve()
        if not path.exists():
            raise LogUnsupported(f"there is no log at {path}")
        refuse_foreign(path)
        if not path.stat().st_size and not wal_of(path).exists():
            raise LogUnsupported(f"{path} is empty: there is no log in it")
        if kind == BACKUP and wal_of(path).exists():
            raise LogUnsupported(f"{path} is a log, not a backup")
        try:
            return cls._reader(path, kind, immutable=kind == BACKUP or stands_still(path))
        except DiskFull:  # there is no room for SQLite's index of the write-ahead log
            if has_wal(path) or holder_of(path) is not None:
                raise
            return cls._reader(path, kind, immutable=True)
        except StoreFailed as error:
            if has_wal(path) and not shm_of(path).exists():
                raise StoreFailed(_NOT_CLOSED.format(path)) from error
            raise

    @classmethod
    def _reader(cls, path: Path, kind: str, *, immutable: bool) -> SqliteStore:
        datastore = Datastore(path, writable=False, immutable=immutable)
        return cls._checked(path, datastore, None, kind, writable=False)

    @classmethod
    def create(cls, path: Path, *, env: Env, kind: str) -> SqliteStore:
        """Make a new file that no other process knows of yet."""
        path = path.resolve()
        if path.exists():
            raise LogUnsupported(f"{path} exists already")
        return cls._opened(path, env, None, kind)

    @classmethod
    def _opened(
        cls,
        path: Path,
        env: Env,
        lock: WriterLock | None,
        kind: str,
        witness: Callable[[str], Witness | None] = lambda _generation: None,
    ) -> SqliteStore:
        make_private(path)
        datastore = Datastore(path, writable=True)
        try:
            create_if_empty(datastore, env, kind)
            seen = witness(read_about(datastore, path).generation)
            if seen is not None:
                _refuse_if_cut_short(datastore, path, seen)
            upgrade(datastore)
            sync_directory(path.parent)
            return cls._checked(path, datastore, lock, kind, writable=True)
        except BaseException:
            datastore.close()
            raise

    @classmethod
    def _checked(
        cls,
        path: Path,
        datastore: Datastore,
        lock: WriterLock | None,
        kind: str,
        *,
        writable: bool,
    ) -> SqliteStore:
        try:
            store = cls(path, datastore, lock, writable=writable)
        except BaseException:
            datastore.close()
            raise
        if store.kind != kind:
            store.close()
            raise LogUnsupported(f"{path} is a {store.kind}, not a {kind}")
        return store

    def close(self) -> None:
        """Close all connections and give the writer's lock back."""
        self.datastore.close()
        self._reserve.keep()
        if self._lock is not None:
            self._lock.release()

    # Writing

    def commit(self, records: Sequence[Record]) -> None:
        """Write records in one transaction and return when they are on disk."""
        if not self.writable:
            raise ReadOnlyLog(f"{self.path} is open for reading")
        with self.datastore.ours(commit=True) as c:
            c.executemany(schema.INSERT, map(tuple, records))  # sqlite3 binds plain tuples faster
        self._written += _pages_touched(records) * PAGE

    def check_room(self) -> None:
        """Raise DiskFull if there is no room on the disk, beside the reserve."""
        self._reserve.take()

    @property
    def needs_upkeep(self) -> bool:
        """Whether enough was written since the last checkpoint."""
        return self._written >= CHECKPOINT_BYTES

    def upkeep(self) -> None:
        """Move the write-ahead log into the database file; beyond a limit, wait for readers.

        SQLite would do this by itself and keep quiet about a failed sync. Here a failure is seen
        and ends the log; a full disk or a stubborn reader only means trying again later.
        """
        self._written = 0
        try:
            if self._checkpoint("PASSIVE") * PAGE > WAL_LIMIT:
                self._checkpoint("TRUNCATE")
        except (DiskFull, StoreBusy):
            pass
        self._tell_if_it_grows()

    def _tell_if_it_grows(self) -> None:
        """Warn, once each time, of a write-ahead log that cannot be emptied."""
        size = self.wal_bytes
        if size <= WAL_LIMIT:
            self._complained = False
        elif not self._complained:
            self._complained = True
            _log.warning(
                "%s has %d MiB and grows: another program reads the log in one long transaction,"
                " or the disk is full. End that program's transaction (`fuser %s` names it)",
                wal_of(self.path),
                size >> 20,
                self.path,
            )

    @property
    def wal_bytes(self) -> int:
        """How many bytes the write-ahead log has."""
        try:
            return wal_of(self.path).stat().st_size
        except FileNotFoundError:
            return 0

    def complete(self) -> None:
        """Move everything into the database file, so that it can stand alone."""
        if self._checkpoint("TRUNCATE"):
            raise StoreFailed(f"the write-ahead log of {self.path} could not be emptied")

    def _checkpoint(self, mode: str) -> int:
        """Run a checkpoint; give the pages in the write-ahead log."""
        with self.datastore.writing() as connection, connection.cursor() as c:
            try:
                c.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_PATIENCE}")
                _, pages, _ = c.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            except sqlite3.Error as exc:
                raise classified(exc, self.path) from exc
            finally:
                c.execute(f"PRAGMA busy_timeout = {1000 * BUSY_SECONDS}")
        return int(pages)

    # Looking up, for the writer

    def stream_state(self, stream: str) -> StreamState:
        """Tell where a stream stands."""
        with self.datastore.looking() as c:
            newest = self._pages.newest_of_stream(c, stream)
        if newest is None:
            return NO_STREAM
        return StreamState(newest.version, newest.scope, bool(newest.seal))

    def scope_position(self, scope: str) -> int:
        """Tell the position of a scope's newest record."""
        with self.datastore.looking() as c:
            (position,) = c.execute(schema.SCOPE_POSITION, (scope,)).fetchone()
        return position or 0

    def slice_of_stream(self, stream: str, after: int, count: int) -> list[Record]:
        """Read records that follow a version."""
        with self.datastore.looking() as c:
            return self._pages.slice_of_stream(c, stream, after, count)

    def head(self) -> Mark:
        """Give the newest record's place."""
        with self.datastore.ours(commit=False) as c:
            return mark(c.execute(schema.HEAD).fetchone()) or START

    def last_position(self) -> int:
        """Give the last position ever used."""
        with self.datastore.looking() as c:
            row = c.execute(schema.LAST_POSITION).fetchone()
        return 0 if row is None else row[0]

    # Looking up, for everybody

    def commit_time(self) -> int:
        """Give the commit time of the newest record."""
        with self.datastore.ours(commit=False) as c:
            row = c.execute(schema.COMMIT_TIME).fetchone()
        return 0 if row is None else row[0]

    def mark_at(self, position: int) -> Mark | None:
        """Give the place of the record at a position."""
        with self.datastore.ours(commit=False) as c:
            return mark(c.execute(schema.MARK_AT, (position,)).fetchone())

    def mark_before(self, instant: int) -> Mark:
        """Give the place of the last record committed at or before an instant."""
        with self.datastore.ours(commit=False) as c:
            return (
                mark(c.execute(schema.MARK_BEFORE, (max(-_LAST, min(instant, _LAST)),)).fetchone())
                or START
            )

    def version_at(self, stream: str, position: int) -> int:
        """Give the version of a stream at a position."""
        with self.datastore.ours(commit=False) as c:
            return self._pages.version_at(c, stream, position)

    # Reading. A page, its bounds and the head of the log are of one transaction: one moment.

    def read_all(self, after: int, bounds: Bounds) -> StoredPage:
        """Read records by position."""
        with self.datastore.ours(commit=False) as c:
            return self._pages.all(c, after, bounds)

    def read_scope(self, scope: str, after: int, bounds: Bounds) -> StoredPage:
        """Read a scope's records by position."""
        with self.datastore.ours(commit=False) as c:
            return self._pages.scope(c, scope, after, bounds)

    def read_stream(self, stream: str, after_version: int, bounds: Bounds) -> StoredPage:
        """Read a stream's records by version."""
        with self.datastore.ours(commit=False) as c:
            return self._pages.stream(c, stream, after_version, bounds)

    def read_by_stream(self, after: tuple[str, int], limit: int) -> list[Record]:
        """Read all records in order of stream and version, but those that are damaged."""
        with self.datastore.ours(commit=False) as c:
            return self._pages.by_stream(c, after, limit)

    def integrity_problems(self) -> list[str]:
        """Check the file's structure, and that each event id occurs once."""
        with self.datastore.ours(commit=False) as c:
            found = [str(row[0]) for row in c.execute("PRAGMA integrity_check(100)")]
            repeated = c.execute(schema.REPEATED_EVENT_IDS).fetchall()
        return [problem for problem in found if problem != "ok"] + [
            f"event id {event_id.lower()} occurs {times} times" for event_id, times in repeated
        ]

    # The library's recorder interface

    def insert_events(
        self, stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        """Write the library's stored events, for its own tests and tools."""
        try:
            return super().insert_events(stored_events, **kwargs)
        except sqlite3.IntegrityError as exc:
            raise IntegrityError(exc) from exc

    def _insert_events(
        self, c: SQLiteCursor, stored_events: Sequence[StoredEvent], **_: Any
    ) -> Sequence[int]:
        cursor = c.sqlite_cursor
        cursor.execute(schema.LAST_POSITION)
        row = cursor.fetchone()
        first = 1 + (row[0] if row is not None else 0)
        records = [
            foreign_record(first + i, str(e.originator_id), e.originator_version, e.topic, e.state)
            for i, e in enumerate(stored_events)
        ]
        cursor.executemany(schema.INSERT, records)
        return [record.position for record in records]


def _refuse_if_cut_short(datastore: Datastore, path: Path, seen: Witness) -> None:
    with datastore.ours(commit=False) as c:
        end = mark(c.execute(schema.HEAD).fetchone()) or START
    if end.position < seen.position:
        raise LogCutShort(str(path), end.position, seen.file, seen.position)


def _pages_touched(records: Sequence[Record]) -> int:
    """Estimate the pages that a commit wrote: a leaf of two indexes for each stream and scope."""
    content = sum([record.size for record in records]) // PAGE
    return 8 + content + len({r.stream for r in records}) + len({r.scope for r in records})
