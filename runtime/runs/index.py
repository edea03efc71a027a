"""The run directory: which runs there are, and in which status each was at any moment.

A projection of the log in a file of its own, outside the log's commits. Statuses are kept as
intervals of positions, so a list of the past is the same query with a position.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perdure.actors.run.events import RUN_EVENTS, RunCreated
from perdure.actors.run.status import ENDED
from perdure.eventlog.errors import UnreadableRecord
from perdure.runtime.kernel.projection import ProjectionFile

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from perdure.eventlog.record import Mark, Record
    from perdure.eventlog.store import Store
    from perdure.runtime.kernel.projection import Projection

FORMAT: Final = 1
_log = logging.getLogger("perdure.directory")
MAX_PAGE: Final = 501  # the largest page, and one more that tells whether it is the last
OPEN: Final = (1 << 63) - 1  # an interval that has not ended

_SCHEMA: Final = (
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


class RunTables:
    """The questions about runs. Synchronous; asked from a thread."""

    def __init__(self, projection: Projection) -> None:
        """Ask a database with the tables of a directory."""
        self._projection = projection

    def place(self, store: Store) -> Mark | None:
        """Give the last record taken in, if this is a directory of that log."""
        return self._projection.place(store)

    def close(self) -> None:
        """Close the database."""
        self._projection.close()

    def runs(
        self, where: RunFilter, *, before: int | None, at: int | None, limit: int
    ) -> Sequence[Listed]:
        """List runs, newest first, that began before a position, as things stood at a position."""
        condition, values = self._condition(where, before, at)
        statement = (
            f"SELECT r.run_id, r.position FROM runs r WHERE {condition}"  # noqa: S608
            " ORDER BY r.position DESC LIMIT ?"
        )
        with self._projection.reading() as database:
            rows = database.execute(statement, (*values, min(limit, MAX_PAGE))).fetchall()
        return [Listed(*row) for row in rows]

    def count(self, where: RunFilter, *, at: int | None) -> int:
        """Count runs, as things stood at a position."""
        condition, values = self._condition(where, None, at)
        statement = f"SELECT count(*) FROM runs r WHERE {condition}"  # noqa: S608
        with self._projection.reading() as database:
            (count,) = database.execute(statement, values).fetchone()
        return int(count)

    def statuses(self) -> dict[str, int]:
        """Count runs by the status that they are in."""
        statement = f"SELECT status, count(*) FROM intervals WHERE ends = {OPEN} GROUP BY status"  # noqa: S608
        with self._projection.reading() as database:
            return dict(database.execute(statement).fetchall())

    def _condition(
        self, where: RunFilter, before: int | None, at: int | None
    ) -> tuple[str, list[Any]]:
        conditions: list[str] = ["r.position < ?", "r.position <= ?"]
        values: list[Any] = [OPEN if before is None else before, OPEN if at is None else at]
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
            values.append(OPEN if at is None else at)
        return " AND ".join(conditions), values

    def _status_condition(self, count: int, at: int | None, values: list[Any]) -> str:
        moment = OPEN - 1 if at is None else at
        values.extend([moment, moment])
        return (
            "EXISTS (SELECT 1 FROM intervals i WHERE i.run_id = r.run_id"  # noqa: S608 - places only
            " AND i.begins <= ? AND i.ends > ?"
            f" AND i.status IN ({', '.join('?' * count)}))"
        )

    def open_runs(self, after: int, limit: int = MAX_PAGE) -> Sequence[Listed]:
        """List runs that have not ended, oldest first: what a host takes up."""
        ended = ", ".join(f"'{status}'" for status in sorted(ENDED))
        statement = (
            "SELECT r.run_id, r.position FROM runs r JOIN intervals i ON i.run_id = r.run_id"  # noqa: S608
            f" WHERE i.ends = {OPEN} AND i.status NOT IN ({ended}) AND r.position > ?"
            " ORDER BY r.position LIMIT ?"
        )
        with self._projection.reading() as database:
            rows = database.execute(statement, (after, limit)).fetchall()
        return [Listed(*row) for row in rows]

    def beginning_with(self, text: str, tenant: str, limit: int) -> Sequence[str]:
        """List ids of runs that begin with a text, in their order."""
        statement = (
            "SELECT run_id FROM runs WHERE run_id >= ? AND run_id < ? AND tenant = ?"
            " ORDER BY run_id LIMIT ?"
        )
        with self._projection.reading() as database:
            rows = database.execute(
                statement, (text, text + chr(0x10FFFF), tenant, limit)
            ).fetchall()
        return [run_id for (run_id,) in rows]


class Directory(RunTables):
    """A directory that is kept in a file. Synchronous; called from a thread."""

    def __init__(self, path: Path | str) -> None:
        """Open the file, or make it. A damaged or foreign one is started anew."""
        self._file = ProjectionFile(path, _SCHEMA, FORMAT)
        super().__init__(self._file)

    def rebuild(self) -> None:
        """Throw a damaged file away and begin with an empty one."""
        self._file.rebuild()

    def start_anew(self) -> None:
        """Forget everything."""
        with self._file.writing() as database:
            for table in ("place", "runs", "intervals"):
                database.execute(f"DELETE FROM {table}")  # noqa: S608 - constants

    def take_in(self, records: Iterable[Record], generation: str, upto: Mark) -> None:
        """Take in records and move the place mark; delivered twice they change nothing."""
        with self._file.writing() as database:
            fold_in(database, records)
            self._file.move_to(generation, upto)


def fold_in(database: sqlite3.Connection, records: Iterable[Record]) -> None:
    """Bring the tables of a directory up to date with records."""
    for record in records:
        try:
            _fold_in(database, record)
        except UnreadableRecord:
            _log.exception("record %d cannot be read; its run is not listed", record.position)


def _fold_in(database: sqlite3.Connection, record: Record) -> None:
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
        database.execute("INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    known = database.execute(
        "SELECT max(begins) FROM intervals WHERE run_id = ?", (run_id,)
    ).fetchone()[0]
    if known is not None and known >= record.position:
        return
    ending = "UPDATE intervals SET ends = ? WHERE run_id = ? AND ends = ?"
    database.execute(ending, (record.position, run_id, OPEN))
    beginning = "INSERT OR IGNORE INTO intervals VALUES (?, ?, ?, ?)"
    database.execute(beginning, (run_id, fields["status"], record.position, OPEN))
