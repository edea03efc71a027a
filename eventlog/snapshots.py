"""Snapshots: a cache of folded states that may always be thrown away.

A snapshot belongs to one stream at one version, or to one scope at one position, and to one fold,
named by the fold's own version: a changed fold never meets an old snapshot. Generation and event
check tie it to the log it was made from. The cache lives in a file of its own, is consistent but
not durable, and is never backed up.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from perdure.eventlog.checksum import append_to, is_sound
from perdure.eventlog.private import make_private
from perdure.eventlog.sqlite.file import read_only_uri

if TYPE_CHECKING:
    from pathlib import Path

MAX_STATE_BYTES: Final = 1 << 20  # a larger state is folded again rather than kept in memory
KEPT: Final = 4  # of one key: the newest for recovery, some older ones for time travel

_FORMAT: Final = 2  # of the file; one of another format is emptied
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS snapshots (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    fold TEXT NOT NULL,
    number INTEGER NOT NULL,
    generation TEXT NOT NULL,
    event_check BLOB NOT NULL,
    state BLOB NOT NULL,
    checksum BLOB NOT NULL,
    PRIMARY KEY (kind, name, fold, number)
) WITHOUT ROWID
"""
_SAVE: Final = "INSERT OR REPLACE INTO snapshots VALUES (?1, ?2, ?3, ?5, ?4, ?6, ?7, ?8)"
_NEWEST: Final = """
SELECT kind, name, fold, generation, number, event_check, state, checksum FROM snapshots
WHERE kind = ?1 AND name = ?2 AND fold = ?3 AND generation = ?4 AND number <= ?5
ORDER BY number DESC LIMIT 1
"""
_PRUNE: Final = """
DELETE FROM snapshots
WHERE kind = ?1 AND name = ?2 AND (generation <> ?4 OR (fold = ?3 AND number <= (
    SELECT number FROM snapshots
    WHERE kind = ?1 AND name = ?2 AND fold = ?3 AND generation = ?4
    ORDER BY number DESC LIMIT 1 OFFSET ?5)))
"""
_ANY_NUMBER: Final = (1 << 63) - 1

Kind = Literal["stream", "scope"]


class SnapshotKey(NamedTuple):
    """What was folded, by which version of which fold, in which log."""

    kind: Kind
    name: str
    fold: str
    generation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a fold had made of a stream up to a version, or of a scope up to a position."""

    key: SnapshotKey
    number: int  # the version or the position
    check: bytes
    state: bytes


class Snapshots(Protocol):
    """A place to keep snapshots. It may forget any of them at any time."""

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and only a few older ones of its key."""

    def newest(self, key: SnapshotKey, upto: int | None) -> Snapshot | None:
        """Find the newest snapshot of a key, not beyond a version or a position."""


class MemorySnapshots:
    """Snapshots that last as long as the process, of the keys saved last."""

    def __init__(self, keys: int = 1024) -> None:
        """Start with none."""
        self._keys = keys
        self._lock = Lock()
        self._kept: dict[SnapshotKey, list[Snapshot]] = {}

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and only a few older ones of its key."""
        if len(snapshot.state) > MAX_STATE_BYTES:
            return
        key = snapshot.key
        with self._lock:
            others = [s for s in self._kept.pop(key, []) if s.number != snapshot.number]
            newest_last = sorted([*others, snapshot], key=lambda kept: kept.number)
            self._kept[key] = newest_last[-KEPT:]
            if len(self._kept) > self._keys:
                del self._kept[next(iter(self._kept))]

    def newest(self, key: SnapshotKey, upto: int | None) -> Snapshot | None:
        """Find the newest snapshot of a key, not beyond a version or a position."""
        with self._lock:
            kept = list(self._kept.get(key, []))
        for snapshot in reversed(kept):
            if upto is None or snapshot.number <= upto:
                return snapshot
        return None


class SnapshotFile:
    """Snapshots in a small SQLite file beside the log.

    A cache never hurts: a damaged file is started anew, one that cannot be read or written (a full
    disk, say) is as good as an empty one, and so is a snapshot that its checksum does not match.
    """

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        """Open the file, or make it; if it is only to be read, leave it as it is."""
        self._lock = Lock()
        self._path = path
        self._writable = writable
        self._database: sqlite3.Connection | None = None
        self._open()

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and only a few older ones of its key."""
        row = (*snapshot.key, snapshot.number, snapshot.check, snapshot.state)
        with suppress(sqlite3.Error), self._lock:
            database = self._database or self._open()
            if database is not None:
                with database:
                    database.execute(_SAVE, append_to(row))
                    database.execute(_PRUNE, (*snapshot.key, KEPT))

    def newest(self, key: SnapshotKey, upto: int | None) -> Snapshot | None:
        """Find the newest snapshot of a key, not beyond a version or a position."""
        row = None
        with suppress(sqlite3.Error), self._lock:
            limit = _ANY_NUMBER if upto is None else upto
            if self._database is not None:
                row = self._database.execute(_NEWEST, (*key, limit)).fetchone()
        if row is None or not is_sound(row):
            return None
        number, check, state = row[len(key) : -1]
        return Snapshot(key=key, number=number, check=check, state=state)

    def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            self._database.close()

    def _open(self) -> sqlite3.Connection | None:
        """Open the file; what cannot be opened now is tried again when something is saved."""
        opened = _opened if self._writable else _opened_for_reading
        with suppress(sqlite3.Error, OSError):
            try:
                self._database = opened(self._path)
            except sqlite3.DatabaseError as error:
                damaged = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}
                if self._writable and error.sqlite_errorcode in damaged:
                    self._path.unlink(missing_ok=True)
                    self._database = opened(self._path)
        return self._database


def _opened(path: Path) -> sqlite3.Connection:
    make_private(path)
    database = sqlite3.connect(path, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        (found,) = database.execute("PRAGMA user_version").fetchone()
        if found != _FORMAT:
            database.execute("DROP TABLE IF EXISTS snapshots")
        database.execute(_SCHEMA)
        database.execute(f"PRAGMA user_version = {_FORMAT}")
        database.commit()
    except BaseException:
        database.close()
        raise
    return database


def _opened_for_reading(path: Path) -> sqlite3.Connection:
    """Open a file beside whoever writes it."""
    return sqlite3.connect(read_only_uri(path), uri=True, check_same_thread=False)
