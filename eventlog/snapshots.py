"""Snapshots: a cache of folded states that may always be thrown away.

A snapshot belongs to one stream at one version and to one fold, named by the fold's own version: a
changed fold never meets an old snapshot. Generation and event check tie it to the log it was made
from. The cache lives in a file of its own, is consistent but not durable, and is never backed up.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol

from perdure.eventlog.private import make_private

if TYPE_CHECKING:
    from pathlib import Path

MAX_STATE_BYTES: Final = 1 << 20  # a larger state is folded again rather than kept in memory
KEPT_PER_STREAM: Final = 4  # the newest for recovery, some older ones for time travel

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS snapshots (
    stream TEXT NOT NULL,
    fold TEXT NOT NULL,
    version INTEGER NOT NULL,
    generation TEXT NOT NULL,
    event_check BLOB NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (stream, fold, version)
) WITHOUT ROWID
"""
_SAVE: Final = "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?)"
_NEWEST: Final = """
SELECT stream, fold, version, generation, event_check, state FROM snapshots
WHERE stream = ? AND fold = ? AND generation = ? AND version <= ? ORDER BY version DESC LIMIT 1
"""
_PRUNE: Final = """
DELETE FROM snapshots WHERE stream = ?1 AND (generation <> ?2 OR (fold = ?3 AND version <= (
    SELECT version FROM snapshots WHERE stream = ?1 AND fold = ?3 AND generation = ?2
    ORDER BY version DESC LIMIT 1 OFFSET ?4)))
"""
_ANY_VERSION: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a fold had made of a stream up to a version."""

    stream: str
    version: int
    fold: str
    generation: str
    check: bytes
    state: bytes


class Snapshots(Protocol):
    """A place to keep snapshots. It may forget any of them at any time."""

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and only a few older ones of its stream."""

    def newest(self, stream: str, fold: str, generation: str, upto: int | None) -> Snapshot | None:
        """Find the newest snapshot of a stream in a log, not beyond a version."""


class MemorySnapshots:
    """Snapshots that last as long as the process, of the streams saved last."""

    def __init__(self, streams: int = 1024) -> None:
        """Start with none."""
        self._streams = streams
        self._lock = Lock()
        self._kept: dict[tuple[str, str, str], list[Snapshot]] = {}

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and only a few older ones of its stream."""
        if len(snapshot.state) > MAX_STATE_BYTES:
            return
        key = (snapshot.stream, snapshot.fold, snapshot.generation)
        with self._lock:
            others = [s for s in self._kept.pop(key, []) if s.version != snapshot.version]
            newest_last = sorted([*others, snapshot], key=lambda kept: kept.version)
            self._kept[key] = newest_last[-KEPT_PER_STREAM:]
            if len(self._kept) > self._streams:
                del self._kept[next(iter(self._kept))]

    def newest(self, stream: str, fold: str, generation: str, upto: int | None) -> Snapshot | None:
        """Find the newest snapshot of a stream in a log, not beyond a version."""
        with self._lock:
            kept = list(self._kept.get((stream, fold, generation), []))
        for snapshot in reversed(kept):
            if upto is None or snapshot.version <= upto:
                return snapshot
        return None


class SnapshotFile:
    """Snapshots in a small SQLite file beside the log.

    A cache never hurts: a damaged file is started anew, and one that cannot be read or written
    (a full disk, say) is as good as an empty one.
    """

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        """Open the file, or make it; if it is only to be read, leave it as it is."""
        self._lock = Lock()
        if not writable:
            self._database = _open_reader(path)
            return
        try:
            self._database = _open(path)
        except sqlite3.DatabaseError as exc:
            if exc.sqlite_errorcode not in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
                raise
            path.unlink(missing_ok=True)
            self._database = _open(path)

    def save(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and only a few older ones of its stream."""
        row = (
            snapshot.stream,
            snapshot.fold,
            snapshot.version,
            snapshot.generation,
            snapshot.check,
            snapshot.state,
        )
        with suppress(sqlite3.Error), self._lock, self._database:
            self._database.execute(_SAVE, row)
            self._database.execute(
                _PRUNE, (snapshot.stream, snapshot.generation, snapshot.fold, KEPT_PER_STREAM)
            )

    def newest(self, stream: str, fold: str, generation: str, upto: int | None) -> Snapshot | None:
        """Find the newest snapshot of a stream in a log, not beyond a version."""
        key = (stream, fold, generation, _ANY_VERSION if upto is None else upto)
        row = None
        with suppress(sqlite3.Error), self._lock:
            row = self._database.execute(_NEWEST, key).fetchone()
        if row is None:
            return None
        _, _, version, _, check, state = row
        return Snapshot(
            stream=stream,
            version=version,
            fold=fold,
            generation=generation,
            check=check,
            state=state,
        )

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def _open(path: Path) -> sqlite3.Connection:
    make_private(path)
    database = sqlite3.connect(path, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(_SCHEMA)
        database.commit()
    except BaseException:
        database.close()
        raise
    return database


def _open_reader(path: Path) -> sqlite3.Connection:
    """Open a file beside whoever writes it; what cannot be opened is as good as empty."""
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        return sqlite3.connect(uri, uri=True, check_same_thread=False)
    except sqlite3.Error:
        return sqlite3.connect(":memory:", check_same_thread=False)
