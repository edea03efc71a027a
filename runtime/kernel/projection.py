"""A projection: what is folded from the log, in a database of its own.

It holds nothing that is not in the log, so it is consistent but not durable, and may always be
thrown away. Its place mark says up to which record it has come and of which log: one that does not
fit its log is to start from the beginning.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Final

from perdure.eventlog.cursor import check_of
from perdure.eventlog.private import make_private
from perdure.eventlog.record import START

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from perdure.eventlog.record import Mark
    from perdure.eventlog.store import Store

_PLACE: Final = "CREATE TABLE place (generation TEXT, position INTEGER, event_check BLOB)"
_PRIMARY_CODE: Final = 0xFF  # SQLite's extended codes hold the primary one in their last byte
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})


class Projection:
    """A database with a place mark. Synchronous; called from threads, which take turns."""

    def __init__(self, database: sqlite3.Connection) -> None:
        """Take over a connection."""
        self._lock = RLock()  # whoever writes asks for the place, too
        self._database = database

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Ask the database, for the length of a block."""
        with self._lock:
            yield self._database

    def place(self, store: Store) -> Mark | None:
        """Give the last record taken in, if this is a projection of that log."""
        with self._lock:
            row = self._database.execute("SELECT * FROM place").fetchone()
        if row is None or row[0] != store.generation:
            return None
        _, position, check = row
        mark = store.mark_at(position) if position else START
        return mark if mark is not None and check_of(mark.event_id) == check else None

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()


class ProjectionFile(Projection):
    """A projection in a file: made if it is missing, thrown away if it cannot be used."""

    def __init__(self, path: Path | str, schema: Sequence[str], version: int) -> None:
        """Open the file, or make it with these tables. A damaged or foreign one is started anew."""
        self._path = path
        self._schema = (_PLACE, *schema, f"PRAGMA user_version = {version}")
        self._version = version
        super().__init__(self._opened())

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Change the database, for the length of a block: all of it or nothing."""
        with self._lock, self._database:
            yield self._database

    def move_to(self, generation: str, upto: Mark) -> None:
        """Set the place mark, together with what else is being written."""
        self._database.execute("DELETE FROM place")
        self._database.execute(
            "INSERT INTO place VALUES (?, ?, ?)",
            (generation, upto.position, check_of(upto.event_id)),
        )

    def rebuild(self) -> None:
        """Throw a damaged file away and begin with an empty one.

        If that fails, the projection is closed until another try succeeds.
        """
        with self._lock:
            self._database.close()
            self._discard()
            self._database = self._open()

    def _opened(self) -> sqlite3.Connection:
        try:
            return self._open()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            self._discard()
            return self._open()

    def _open(self) -> sqlite3.Connection:
        if not isinstance(self._path, str):
            make_private(self._path)
        database = sqlite3.connect(self._path, check_same_thread=False)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
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
        if not isinstance(self._path, str):
            for part in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + part).unlink(missing_ok=True)


def has_tables(database: sqlite3.Connection, version: int) -> bool:
    """Tell a projection from an empty file; raise if it is of another format."""
    (found,) = database.execute("PRAGMA user_version").fetchone()
    if found not in {0, version}:
        raise sqlite3.DatabaseError(f"a projection of format {found}")
    return bool(found)


def is_damage(error: Exception) -> bool:
    """Tell a file that is broken or not ours from one that cannot be used now: a full disk, say."""
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & _PRIMARY_CODE in _DAMAGE
