"""A projection: what is folded from the log, in a database of its own.

It holds nothing that is not in the log, so it is consistent but not durable, and may always be
thrown away. Its place mark says up to which record it has come and of which log: one that does not
fit its log is to start from the beginning.

One thread writes; several read at the same time, each on a connection of its own, and neither
waits for the other (SQLite in WAL mode). A reader sees one moment, place mark included.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from threading import Condition, RLock
from typing import TYPE_CHECKING, Final

from perdure.eventlog.private import make_private
from perdure.eventlog.record import START, Mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from perdure.eventlog.store import Store

IN_MEMORY: Final = ":memory:"
READERS: Final = 4  # connections that read; more threads than cores would only queue
STEPS: Final = 10_000  # of SQLite's machine between two looks whether an answer is still wanted
_FORMAT: Final = 2  # of the tables that every projection has
_VERSIONS: Final = 1 << 16
_PLACE: Final = """
CREATE TABLE place (
    id INTEGER PRIMARY KEY CHECK (id = 1), generation TEXT, position INTEGER, event_id BLOB
)
"""
_PRIMARY_CODE: Final = 0xFF  # SQLite's extended codes hold the primary one in their last byte
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})


class ProjectionClosed(OSError):
    """The projection's file could not be opened yet, or was closed."""


class Readers:
    """Connections that threads borrow; made when they are needed, and never too many."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], most: int) -> None:
        """Connect nothing yet."""
        self._connect = connect
        self._most = most
        self._free: list[sqlite3.Connection] = []
        self._lent = 0
        self._shut = False
        self._changed = Condition()

    @contextmanager
    def one(self) -> Iterator[sqlite3.Connection]:
        """Borrow a connection for the length of a block; wait for one if all are lent."""
        with self._changed:
            while self._shut or (not self._free and self._lent >= self._most):
                self._changed.wait()
            found = self._free.pop() if self._free else None
            self._lent += 1
        try:
            if found is None:
                found = self._connect()
            yield found
        finally:
            with self._changed:
                self._lent -= 1
                if found is not None:
                    self._free.append(found)
                self._changed.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Close all connections when they are back; lend none for the length of a block."""
        with self._changed:
            self._shut = True
            while self._lent:
                self._changed.wait()
            for connection in self._free:
                connection.close()
            self._free.clear()
        try:
            yield
        finally:
            with self._changed:
                self._shut = False
                self._changed.notify_all()


class Projection(ABC):
    """A database with a place mark. Synchronous; called from threads."""

    @abstractmethod
    def reading(
        self, unwanted: Callable[[], bool] | None = None
    ) -> AbstractContextManager[sqlite3.Connection]:
        """Ask the database, for the length of a block in which it stands still.

        A query is interrupted, with an OperationalError, once its answer is ``unwanted``.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the database."""

    def place(self, store: Store) -> Mark | None:
        """Give the last record taken in, if this is a projection of that log."""
        with self.reading() as database:
            return place_of(database, store)


class ProjectionFile(Projection):
    """A projection in a file: made if it is missing, thrown away if it cannot be used."""

    def __init__(self, path: Path | str, schema: Sequence[str], version: int) -> None:
        """Name the file. Nothing is opened before ``open``."""
        self.path = path
        self._schema = (_PLACE, *schema, f"PRAGMA user_version = {_FORMAT * _VERSIONS + version}")
        self._version = version
        self._lock = RLock()  # for the thread that writes
        self._writer: sqlite3.Connection | None = None
        self._readers = Readers(self._reader, 1 if path == IN_MEMORY else READERS)

    def open(self) -> None:
        """Open the file, or make it. A damaged one, or one of another format, is started anew."""
        with self._lock:
            if self._writer is not None:
                return
            try:
                self._writer = self._connected()
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    raise
                self._discard()
                self._writer = self._connected()

    @contextmanager
    def reading(self, unwanted: Callable[[], bool] | None = None) -> Iterator[sqlite3.Connection]:
        """Ask the database on one of several connections; see Projection."""
        with self._readers.one() as database:
            database.set_progress_handler(unwanted, STEPS)
            database.execute("BEGIN")
            try:
                yield database
            finally:
                database.set_progress_handler(None, 0)
                with suppress(sqlite3.Error):
                    database.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Change the database, for the length of a block: all of it or nothing."""
        with self._lock, self._written() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("COMMIT")
            finally:
                if database.in_transaction:
                    database.execute("ROLLBACK")

    def rebuild(self) -> None:
        """Throw the file away and begin with an empty one, when the last query is answered.

        If that fails, the projection is closed until another try succeeds.
        """
        with self._lock, self._readers.closed():
            self._let_go()
            self._discard()
            self._writer = self._connected()

    def close(self) -> None:
        """Close the database, when the last query is answered."""
        with self._lock, self._readers.closed():
            self._let_go()

    def _let_go(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @contextmanager
    def _written(self) -> Iterator[sqlite3.Connection]:
        if self.path == IN_MEMORY:  # there is one connection for everything
            with self._readers.one() as database:
                yield database
        else:
            yield self._opened()

    def _opened(self) -> sqlite3.Connection:
        if self._writer is None:
            raise ProjectionClosed("the projection is not open")
        return self._writer

    def _reader(self) -> sqlite3.Connection:
        writer = self._opened()
        if isinstance(self.path, str):
            return writer
        return connected(self.path, ("temp_store = MEMORY", "query_only = ON"))

    def _connected(self) -> sqlite3.Connection:
        if not isinstance(self.path, str):
            make_private(self.path)
        database = connected(self.path, ("journal_mode = WAL", "synchronous = NORMAL"))
        try:
            if not has_tables(database, self._version):
                with database:
                    database.execute("BEGIN")  # all tables or none
                    for statement in self._schema:
                        database.execute(statement)
        except BaseException:
            database.close()
            raise
        return database

    def _discard(self) -> None:
        if not isinstance(self.path, str):
            for part in ("", "-wal", "-shm"):
                self.path.with_name(self.path.name + part).unlink(missing_ok=True)


def connected(path: Path | str, settings: Sequence[str]) -> sqlite3.Connection:
    """Connect to a database with settings, or leave nothing open."""
    name = path if isinstance(path, str) else path.absolute().as_uri()
    database = sqlite3.connect(name, uri=True, check_same_thread=False, isolation_level=None)
    try:
        for setting in settings:
            database.execute(f"PRAGMA {setting}")
    except BaseException:
        database.close()
        raise
    return database


def place_of(database: sqlite3.Connection, store: Store) -> Mark | None:
    """Give the last record that was taken in, if the database is a projection of that log."""
    row, mark = database.execute("SELECT generation FROM place").fetchone(), place_in(database)
    if row is None or row[0] != store.generation:
        return None
    return mark if mark == START or store.mark_at(mark.position) == mark else None


def place_in(database: sqlite3.Connection) -> Mark:
    """Give the last record that was taken in, of whatever log."""
    row = database.execute("SELECT position, event_id FROM place").fetchone()
    return START if row is None or not row[0] else Mark(*row)


def move_place(database: sqlite3.Connection, generation: str, upto: Mark) -> None:
    """Set the place mark, together with what else is being written."""
    row = (generation, upto.position, upto.event_id)
    database.execute("INSERT OR REPLACE INTO place VALUES (1, ?, ?, ?)", row)


def has_tables(database: sqlite3.Connection, version: int) -> bool:
    """Tell a projection from an empty file; raise if it is of another format."""
    (found,) = database.execute("PRAGMA user_version").fetchone()
    if found not in {0, _FORMAT * _VERSIONS + version}:
        raise sqlite3.DatabaseError(f"a projection of format {found}")
    return bool(found)


def is_damage(error: Exception) -> bool:
    """Tell a file that is broken or not ours from one that cannot be used now: a full disk, say."""
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & _PRIMARY_CODE in _DAMAGE
