"""Connections to the log's database, each set up and checked in the same way.

They come from the ``eventsourcing`` library's pool, whose recorder methods use them too. What
differs from the library: the settings are read back, writing transactions begin IMMEDIATE (so they
never fail half-way for a lock), and a failed transaction is always rolled back.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Final

from eventsourcing.sqlite import (
    SQLiteConnection,
    SQLiteConnectionPool,
    SQLiteCursor,
    SQLiteDatastore,
)

from perdure.eventlog.errors import (
    DiskFull,
    EventLogError,
    LogClosed,
    LogUnsupported,
    StoreBusy,
    StoreConflict,
    StoreDamaged,
    StoreFailed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUSY_SECONDS: Final = 5
# A text that is no UTF-8 is an error without a code; in a message about it, it is the second one.
DATABASE_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
POOL_SIZE: Final = 6  # the log's four reading threads, the writer, and one to spare
_PRIMARY_CODE: Final = 0xFF
_CLOSE_PATIENCE: Final = 100  # tenths of a second; a page is read in some milliseconds
_KNOWN: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_LOCKED,
    }
)
_SETTINGS: Final = (
    ("journal_mode", "wal"),
    ("synchronous", 2),  # FULL: a commit that returned is on disk
    ("wal_autocheckpoint", 0),  # the writer checkpoints itself and sees when that fails
    ("journal_size_limit", 64 << 20),
    ("foreign_keys", 1),
    ("trusted_schema", 0),
)


class Connection(SQLiteConnection):
    """A connection whose transactions end cleanly, whatever happens in them."""

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[SQLiteCursor]:
        """Begin, and commit or roll back. Errors are those of ``sqlite3``."""
        cursor = self.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE" if commit else "BEGIN")
            with cursor:
                yield cursor
            if commit:
                self.commit()
        finally:
            if self._sqlite_conn.in_transaction:
                with suppress(sqlite3.Error):
                    self.rollback()


class _Pool(SQLiteConnectionPool):
    def __init__(self, path: Path, *, writable: bool, immutable: bool) -> None:
        mode = "rwc" if writable else "ro&immutable=1" if immutable else "rw"
        super().__init__(
            db_name=f"{path.as_uri()}?mode={mode}",
            lock_timeout=BUSY_SECONDS,
            pool_size=POOL_SIZE,
        )
        self._path = path
        self._writable = writable
        self._immutable = immutable
        self._closing = False

    def get_connection(
        self, timeout: float | None = None, *, is_writer: bool | None = None
    ) -> SQLiteConnection:
        if self._closing:
            raise LogClosed(f"{self._path} is closed")
        return super().get_connection(timeout, is_writer=is_writer)

    def close(self) -> None:
        """Close when nobody is in the middle of a transaction: SQLite would not survive that."""
        self._closing = True
        with self._put_condition:
            for _ in range(_CLOSE_PATIENCE):
                if not self._in_use:
                    break
                self._put_condition.wait(timeout=0.1)
            else:
                raise StoreBusy(f"{self._path} is still being read; it stays open")
            super().close()

    def make(self) -> Connection:
        """Make a connection that does not belong to the pool."""
        if self._closing:
            raise LogClosed(f"{self._path} is closed")
        return self._create_connection()

    def _create_connection(self) -> Connection:
        try:
            database = sqlite3.connect(
                self.db_name,
                uri=True,
                timeout=BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,  # one thread at a time, which the pool sees to
                cached_statements=64,
            )
        except sqlite3.Error as exc:
            raise not_opened(self._path, exc) from exc
        try:
            self._set_up(database)
        except DATABASE_ERRORS as exc:
            database.close()
            raise not_opened(self._path, exc) from exc
        except BaseException:
            database.close()
            raise
        return Connection(database, max_age=None)

    def _set_up(self, database: sqlite3.Connection) -> None:
        for name, wanted in _SETTINGS:
            if self._writable or name != "journal_mode":
                database.execute(f"PRAGMA {name} = {wanted}").fetchall()  # raises if it failed
            (found,) = database.execute(f"PRAGMA {name}").fetchone()
            if found != wanted and not self._immutable:
                raise LogUnsupported(f"SQLite refuses {name} = {wanted} on {self._path}: {found}")
        if not self._writable:
            database.execute("PRAGMA query_only = ON").fetchall()
        database.row_factory = sqlite3.Row  # what the library's recorder methods expect


class Datastore(SQLiteDatastore):
    """The library's datastore with our connections and text stream ids."""

    def __init__(self, path: Path, *, writable: bool, immutable: bool = False) -> None:
        """Open nothing yet; connections are made on demand."""
        self._path = path
        self._writable = writable
        self._writer: Connection | None = None
        self._writer_lock = Lock()
        super().__init__(db_name="", originator_id_type="text")
        self.pool = self._pool = _Pool(path, writable=writable, immutable=immutable)

    @contextmanager
    def writing(self) -> Iterator[SQLiteConnection]:
        """Borrow the one connection that writes: the pages in its cache are always current."""
        with self._writer_lock:
            if self._writer is None:
                self._writer = self._pool.make()
            yield self._writer

    @contextmanager
    def ours(self, *, commit: bool) -> Iterator[sqlite3.Cursor]:
        """Run a transaction with rows as plain tuples and errors as those of the log."""
        borrowed = self.writing() if commit else self.get_connection(commit=False)
        try:
            with borrowed as connection, connection.transaction(commit=commit) as wrapped:
                cursor = wrapped.sqlite_cursor
                cursor.row_factory = None
                yield cursor
        except DATABASE_ERRORS as exc:
            raise classified(exc, self._path) from exc

    @contextmanager
    def looking(self) -> Iterator[sqlite3.Cursor]:
        """Read as the writer does: on its own connection, whatever readers do to theirs."""
        if not self._writable:
            with self.ours(commit=False) as cursor:
                yield cursor
            return
        try:
            with self.writing() as connection, connection.cursor() as cursor:
                cursor.row_factory = None
                yield cursor
        except DATABASE_ERRORS as exc:
            raise classified(exc, self._path) from exc

    def close(self) -> None:
        """Close all connections, when nobody is in the middle of a transaction."""
        with self._writer_lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self.pool.close()


def not_opened(path: Path, error: Exception) -> EventLogError:
    """Tell why a file could not be opened: whether it is no log, or there is another trouble."""
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE:
        return DiskFull(f"there is no room on the disk to open {path}")
    if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}:
        return LogUnsupported(f"{path} is not a log: {error}")
    if code in _KNOWN or isinstance(error, UnicodeDecodeError):
        return classified(error, path)
    return StoreFailed(f"cannot open {path}: {error}")


def classified(error: Exception, path: Path) -> EventLogError:
    """Tell what a database error means: who has to do what about it."""
    match getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE:
        case sqlite3.SQLITE_CONSTRAINT:
            return StoreConflict(str(error))
        case sqlite3.SQLITE_FULL:
            return DiskFull("the disk is full")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusy("another process holds the database's lock")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StoreDamaged(str(path), str(error))
        case 0 if isinstance(error, sqlite3.OperationalError | UnicodeDecodeError):
            return StoreDamaged(str(path), "a text in it is not UTF-8")  # the message holds it
        case _:
            return StoreFailed(f"{type(error).__name__}: {error}")
