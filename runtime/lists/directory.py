"""The run directory: which runs there are, and in which status each was at any moment.

A projection of the log in a file of its own, outside the log's commits. It may always be thrown
away: its place mark says up to which record it has come and of which log, and one that does not fit
is rebuilt from the beginning. Statuses are kept as intervals of positions, so a list of the past is
the same query with a position.

Beside the process that keeps the file, or after it, ``read_directory`` opens it without touching
it: what it lacks is folded into tables in memory that lie over those of the file.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from actors.run.events import RUN_EVENTS, RunCreated
from actors.run.status import TERMINAL
from eventlog.cursor import check_of
from eventlog.errors import CodecError
from eventlog.record import START
from eventlog.store import Bounds
from runtime.lists.projection import discard, has_tables, open_projection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from eventlog.record import Mark, Record
    from eventlog.store import Store, StoredPage

FORMAT: Final = 1
_log = logging.getLogger("perdure.directory")
MAX_PAGE: Final = 501  # the largest page, and one more that tells whether it is the last
_OPEN: Final = (1 << 63) - 1  # an interval that has not ended

_SCHEMA: Final = (
    """
    CREATE TABLE place (generation TEXT, position INTEGER, event_check BLOB)
    """,
    """
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY, position INTEGER NOT NULL UNIQUE, created_at INTEGER NOT NULL,
        tenant TEXT NOT NULL, plugin_id TEXT NOT NULL, entry_id TEXT NOT NULL,
        task_id TEXT, session_id TEXT, root_run_id TEXT NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE intervals (
        run_id TEXT NOT NULL, status TEXT NOT NULL,
        begins INTEGER NOT NULL, ends INTEGER NOT NULL,
        PRIMARY KEY (run_id, begins)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX intervals_by_status ON intervals (status, ends)",
    "CREATE INDEX runs_by_task ON runs (task_id, position)",
    "CREATE INDEX runs_by_session ON runs (session_id, position)",
    "CREATE INDEX runs_by_root ON runs (root_run_id, position)",
    f"PRAGMA user_version = {FORMAT}",
)
# Over a file that is only read: tables of the same shape in memory, and views that show both. The
# last interval of a run in the file ends where the first new one begins.
_OVERLAY: Final = (
    "CREATE TEMP TABLE new_runs AS SELECT * FROM main.runs LIMIT 0",
    "CREATE TEMP TABLE new_intervals AS SELECT * FROM main.intervals LIMIT 0",
    "CREATE UNIQUE INDEX temp.new_runs_by_id ON new_runs (run_id)",
    "CREATE UNIQUE INDEX temp.new_runs_by_position ON new_runs (position)",
    "CREATE UNIQUE INDEX temp.new_intervals_by_run ON new_intervals (run_id, begins)",
    "CREATE TEMP VIEW runs AS SELECT * FROM main.runs UNION ALL SELECT * FROM new_runs",
    f"""
    CREATE TEMP VIEW intervals AS
    SELECT run_id, status, begins, CASE WHEN ends = {_OPEN} THEN ifnull(
        (SELECT min(n.begins) FROM new_intervals n WHERE n.run_id = i.run_id), ends)
        ELSE ends END AS ends
    FROM main.intervals i UNION ALL SELECT * FROM new_intervals
    """,  # noqa: S608 - a number of ours
)
_COLUMNS: Final = ("plugin_id", "entry_id", "task_id", "session_id", "root_run_id", "tenant")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs to list: all that is stated must match."""

    plugin_id: str | None = None
    entry_id: str | None = None
    task_id: str | None = None
    session_id: str | None = None
    root_run_id: str | None = None
    tenant: str | None = None
    statuses: frozenset[str] | None = None
    created_from: int | None = None  # UTC nanoseconds, inclusive
    created_until: int | None = None  # exclusive
    newest: bool = False  # only the newest attempt of each root


class Listed(NamedTuple):
    """A run in a list: its id, and the position that pages go on from."""

    run_id: str
    position: int


class Directory:
    """The projection's file. Synchronous; called from a thread."""

    def __init__(self, path: Path | str) -> None:
        """Open the file, or make it. A damaged or foreign one is started anew."""
        self._lock = Lock()
        self._new = ""  # the tables that are written
        self._path = path
        self._database = open_projection(path, _SCHEMA, FORMAT)

    def rebuild(self) -> None:
        """Throw a damaged file away and begin with an empty one."""
        self._database.close()
        discard(self._path)
        self._database = open_projection(self._path, _SCHEMA, FORMAT)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    # Its place in the log

    def place(self, store: Store) -> Mark | None:
        """Give the last record taken in, if this is a directory of that log."""
        with self._lock:
            row = self._database.execute("SELECT * FROM place").fetchone()
        if row is None or row[0] != store.generation:
            return None
        _, position, check = row
        mark = store.mark_at(position) if position else START
        return mark if mark is not None and check_of(mark.event_id) == check else None

    def start_anew(self) -> None:
        """Forget everything."""
        with self._lock, self._database:
            for table in ("place", "runs", "intervals"):
                self._database.execute(f"DELETE FROM {table}")  # noqa: S608 - constants

    def take_in(self, records: Iterable[Record], generation: str, upto: Mark) -> None:
        """Take in records and move the place mark; delivered twice they change nothing."""
        with self._lock, self._database:
            self._take_in_all(records)
            self._database.execute("DELETE FROM place")
            self._database.execute(
                "INSERT INTO place VALUES (?, ?, ?)",
                (generation, upto.position, check_of(upto.event_id)),
            )

    def _take_in_all(self, records: Iterable[Record]) -> None:
        for record in records:
            try:
                self._take_in(record)
            except CodecError:
                _log.exception("record %d cannot be read; its run is not listed", record.position)

    def _take_in(self, record: Record) -> None:
        fields = record.metadata.fields
        if not fields.get("changed") or not record.stream.startswith("run/"):
            return
        run_id = record.stream.removeprefix("run/")
        if record.name == RunCreated.event_name:
            created: RunCreated = RUN_EVENTS.decode(record)
            row = (
                run_id,
                record.position,
                created.at,
                created.tenant,
                created.plugin_id,
                created.entry_id,
                created.task_id,
                created.session_id,
                created.root_run_id,
            )
            self._write("INSERT OR IGNORE INTO {}runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        known = self._database.execute(
            "SELECT max(begins) FROM intervals WHERE run_id = ?", (run_id,)
        ).fetchone()[0]
        if known is not None and known >= record.position:
            return
        ending = "UPDATE {}intervals SET ends = ? WHERE run_id = ? AND ends = ?"
        self._write(ending, (record.position, run_id, _OPEN))
        beginning = "INSERT OR IGNORE INTO {}intervals VALUES (?, ?, ?, ?)"
        self._write(beginning, (run_id, fields["status"], record.position, _OPEN))

    def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        self._database.execute(statement.format(self._new), values)

    # Questions

    def runs(
        self, where: RunFilter, *, before: int | None, at: int | None, limit: int
    ) -> Sequence[Listed]:
        """List runs, newest first, that began before a position, as things stood at a position."""
        condition, values = self._condition(where, before, at)
        statement = (
            f"SELECT r.run_id, r.position FROM runs r WHERE {condition}"  # noqa: S608
            " ORDER BY r.position DESC LIMIT ?"
        )
        with self._lock:
            rows = self._database.execute(statement, (*values, min(limit, MAX_PAGE))).fetchall()
        return [Listed(*row) for row in rows]

    def count(self, where: RunFilter, *, at: int | None) -> int:
        """Count runs, as things stood at a position."""
        condition, values = self._condition(where, None, at)
        statement = f"SELECT count(*) FROM runs r WHERE {condition}"  # noqa: S608
        with self._lock:
            (count,) = self._database.execute(statement, values).fetchone()
        return int(count)

    def statuses(self) -> dict[str, int]:
        """Count runs by the status that they are in."""
        statement = f"SELECT status, count(*) FROM intervals WHERE ends = {_OPEN} GROUP BY status"  # noqa: S608
        with self._lock:
            return dict(self._database.execute(statement).fetchall())

    def _condition(
        self, where: RunFilter, before: int | None, at: int | None
    ) -> tuple[str, list[Any]]:
        conditions: list[str] = ["r.position < ?", "r.position <= ?"]
        values: list[Any] = [_OPEN if before is None else before, _OPEN if at is None else at]
        for column in _COLUMNS:
            wanted = getattr(where, column)
            if wanted is not None:
                conditions.append(f"r.{column} = ?")
                values.append(wanted)
        if where.created_from is not None:
            conditions.append("r.created_at >= ?")
            values.append(where.created_from)
        if where.created_until is not None:
            conditions.append("r.created_at < ?")
            values.append(where.created_until)
        if where.statuses is not None:
            conditions.append(self._status_condition(len(where.statuses), at, values))
            values.extend(sorted(where.statuses))
        if where.newest:
            conditions.append(
                "NOT EXISTS (SELECT 1 FROM runs n WHERE n.root_run_id = r.root_run_id"
                " AND n.position > r.position AND n.position <= ?)"
            )
            values.append(_OPEN if at is None else at)
        return " AND ".join(conditions), values

    def _status_condition(self, count: int, at: int | None, values: list[Any]) -> str:
        moment = _OPEN - 1 if at is None else at
        values.extend([moment, moment])
        return (
            "EXISTS (SELECT 1 FROM intervals i WHERE i.run_id = r.run_id"  # noqa: S608 - places only
            " AND i.begins <= ? AND i.ends > ?"
            f" AND i.status IN ({', '.join('?' * count)}))"
        )

    def open_runs(self, after: int, limit: int = MAX_PAGE) -> Sequence[Listed]:
        """List runs that have not ended, oldest first: what a host takes up."""
        ended = ", ".join(f"'{status.value}'" for status in sorted(TERMINAL))
        statement = (
            "SELECT r.run_id, r.position FROM runs r JOIN intervals i ON i.run_id = r.run_id"  # noqa: S608
            f" WHERE i.ends = {_OPEN} AND i.status NOT IN ({ended}) AND r.position > ?"
            " ORDER BY r.position LIMIT ?"
        )
        with self._lock:
            rows = self._database.execute(statement, (after, limit)).fetchall()
        return [Listed(*row) for row in rows]

    def beginning_with(self, text: str, tenant: str, limit: int) -> Sequence[str]:
        """List ids of runs that begin with a text, in their order."""
        statement = (
            "SELECT run_id FROM runs WHERE run_id >= ? AND run_id < ? AND tenant = ?"
            " ORDER BY run_id LIMIT ?"
        )
        with self._lock:
            rows = self._database.execute(
                statement, (text, text + chr(0x10FFFF), tenant, limit)
            ).fetchall()
        return [run_id for (run_id,) in rows]


class _Overlay(Directory):
    """A directory that somebody else keeps, at one moment, with newer records over it."""

    def __init__(self, path: Path) -> None:
        self._lock = Lock()
        self._new = "new_"
        self._database = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            check_same_thread=False,
            isolation_level=None,
        )
        try:
            for statement in _OVERLAY if has_tables(self._database, FORMAT) else ():
                self._database.execute(statement)
            self._database.execute("BEGIN")  # from here on the file stands still
        except BaseException:
            self._database.close()
            raise

    def lay_over(self, records: Iterable[Record]) -> None:
        """Take in records that the file does not have."""
        self._take_in_all(records)


def read_directory(path: Path, store: Store) -> Directory:
    """Open a directory beside whoever keeps it, with all that the log holds; write nothing.

    A file that is missing, damaged or of another log is passed over, and the log folded from its
    beginning.
    """
    overlay: _Overlay | None = None
    with suppress(sqlite3.Error):
        overlay = _Overlay(path)
        mark = overlay.place(store)
        if mark is not None:
            for page in _pages(store, mark.position):
                overlay.lay_over(page.records)
            return overlay
    if overlay is not None:
        overlay.close()
    directory = Directory(":memory:")
    for page in _pages(store, 0):
        directory.take_in(page.records, store.generation, page.head)
    return directory


def _pages(store: Store, position: int) -> Iterator[StoredPage]:
    while True:
        page = store.read_all(position, Bounds())
        yield page
        if not page.more:
            return
        position = page.records[-1].position
