"""The index of runs: which there are, and in which status each was at any position.

Statuses are kept as intervals of positions, so a list of the past is the same query with a
position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perdure.actors.run.events import RUN_EVENTS, RunCreated
from perdure.actors.run.status import ENDED
from perdure.actors.run.stream import RUN_PREFIX, run_id_of
from perdure.eventlog.filter import Filter
from perdure.eventlog.record import START
from perdure.runtime.kernel.listing import Listing

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from perdure.eventlog.record import Mark, Record
    from perdure.runtime.kernel.live_listing import LiveListing
    from perdure.runtime.kernel.projection import Projection

MAX_PAGE: Final = 501  # the largest page, and one more that tells whether it is the last
OPEN: Final = (1 << 63) - 1  # an interval that has not ended

_SCHEMA: Final = (
    """
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY, position INTEGER NOT NULL UNIQUE, created_at INTEGER NOT NULL,
        tenant TEXT NOT NULL, plugin_id TEXT NOT NULL, entry_id TEXT NOT NULL,
        task_id TEXT, session_id TEXT, root_run_id TEXT NOT NULL, started_by TEXT
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
    "CREATE INDEX runs_by_starter ON runs (started_by, position)",
)
# Tables of the same shape in memory, and views that show both and are written like tables. The last
# interval of a run in the file ends where the first new one begins.
_OVERLAY: Final = (
    "CREATE TEMP TABLE new_runs AS SELECT * FROM main.runs LIMIT 0",
    "CREATE TEMP TABLE new_intervals AS SELECT * FROM main.intervals LIMIT 0",
    "CREATE UNIQUE INDEX temp.new_runs_by_id ON new_runs (run_id)",
    "CREATE UNIQUE INDEX temp.new_runs_by_position ON new_runs (position)",
    "CREATE UNIQUE INDEX temp.new_intervals_by_run ON new_intervals (run_id, begins)",
    "CREATE TEMP VIEW runs AS SELECT * FROM main.runs UNION ALL SELECT * FROM new_runs",
    f"""
    CREATE TEMP VIEW intervals AS
    SELECT run_id, status, begins, CASE WHEN ends = {OPEN} THEN ifnull(
        (SELECT min(n.begins) FROM new_intervals n WHERE n.run_id = i.run_id), ends)
        ELSE ends END AS ends
    FROM main.intervals i UNION ALL SELECT * FROM new_intervals
    """,  # noqa: S608 - a number of ours
    """
    CREATE TEMP TRIGGER new_run INSTEAD OF INSERT ON runs BEGIN
        INSERT INTO new_runs VALUES (
            new.run_id, new.position, new.created_at, new.tenant, new.plugin_id, new.entry_id,
            new.task_id, new.session_id, new.root_run_id, new.started_by
        );
    END
    """,
    """
    CREATE TEMP TRIGGER new_interval INSTEAD OF INSERT ON intervals BEGIN
        INSERT INTO new_intervals VALUES (new.run_id, new.status, new.begins, new.ends);
    END
    """,
    """
    CREATE TEMP TRIGGER interval_ends INSTEAD OF UPDATE ON intervals BEGIN
        UPDATE new_intervals SET ends = new.ends WHERE run_id = old.run_id AND begins = old.begins;
    END
    """,
)
_COLUMNS: Final = (
    "plugin_id",
    "entry_id",
    "task_id",
    "session_id",
    "root_run_id",
    "started_by",
    "tenant",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs to list: all that is stated must match."""

    plugin_id: str | None = None
    entry_id: str | None = None
    task_id: str | None = None
    session_id: str | None = None
    root_run_id: str | None = None
    started_by: str | None = None
    tenant: str | None = None
    statuses: frozenset[str] | None = None
    created_from: int | None = None  # UTC nanoseconds, inclusive
    created_until: int | None = None  # exclusive
    newest: bool = False  # only the newest attempt of each root
    top_level: bool = False  # only those that no other run has started


class Listed(NamedTuple):
    """A run in a list: its id, and the position that pages go on from."""

    run_id: str
    position: int


class RunTables:
    """The questions about runs. Synchronous; asked from a thread."""

    def __init__(self, projection: Projection) -> None:
        """Ask a database with the tables of the index."""
        self._projection = projection

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
        if where.top_level:
            conditions.append("r.started_by IS NULL")
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


def _fold(database: sqlite3.Connection, record: Record) -> None:
    fields = record.metadata.fields
    if not fields.get("changed") or not record.stream.startswith(RUN_PREFIX):
        return
    run_id = run_id_of(record.stream)
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
            created.started_by,
        )
        database.execute("INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    known = database.execute(
        "SELECT max(begins) FROM intervals WHERE run_id = ?", (run_id,)
    ).fetchone()[0]
    if known is not None and known >= record.position:
        return
    ending = "UPDATE intervals SET ends = ? WHERE run_id = ? AND ends = ?"
    database.execute(ending, (record.position, run_id, OPEN))
    beginning = "INSERT OR IGNORE INTO intervals VALUES (?, ?, ?, ?)"
    database.execute(beginning, (run_id, fields["status"], record.position, OPEN))


RUN_LISTING: Final = Listing(
    name="runs",
    version=2,
    schema=_SCHEMA,
    overlay=_OVERLAY,
    where=Filter(fields={"changed": frozenset({True})}),
    fold=_fold,
)


class RunIndex:
    """Lists of runs, each true at a place in the log."""

    def __init__(self, listing: LiveListing) -> None:
        """Read tables that follow the log."""
        self._listing = listing
        self._log = listing.log
        self._tables = RunTables(listing.tables)

    async def list(
        self,
        where: RunFilter,
        *,
        before: int | None = None,
        at: Mark | None = None,
        limit: int = 50,
    ) -> tuple[Sequence[Listed], Mark]:
        """List runs, newest first, and say at which place in the log this is true."""
        true_at = at or await self._log.head()
        await self._listing.reach(true_at)
        found = await self._log.in_thread(
            lambda: self._tables.runs(where, before=before, at=true_at.position, limit=limit)
        )
        return found, true_at

    async def find(self, beginning: str, tenant: str, limit: int) -> tuple[Sequence[str], Mark]:
        """List ids that begin with a text, and say at which place in the log this is true."""
        true_at = await self._log.head()
        await self._listing.reach(true_at)
        tables = self._tables
        found = await self._log.in_thread(tables.beginning_with, beginning, tenant, limit)
        return found, true_at

    async def count(self, where: RunFilter, at: Mark) -> int:
        """Count runs, as things stood at a place."""
        await self._listing.reach(at)
        return await self._log.in_thread(lambda: self._tables.count(where, at=at.position))

    async def statuses(self) -> dict[str, int]:
        """Count runs by status, as far as they have been taken in: a moment ago."""
        if self._listing.reached == START:
            return {}
        return await self._log.in_thread(self._tables.statuses)

    async def open_runs(self, after: int = 0) -> Sequence[Listed]:
        """List runs that have not ended, oldest first, a page after a position."""
        await self._listing.reach(await self._log.head())
        return await self._log.in_thread(self._tables.open_runs, after)
