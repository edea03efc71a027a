"""The index of runs: which there are, and in which status each was at any position.

One row says where a run stands. The statuses that it has left are intervals of positions, so a list
of the past is found without walking along the runs of all times.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perdure.actors.run.events import RUN_EVENTS, RunCreated
from perdure.actors.run.status import ENDED
from perdure.actors.run.stream import RUN_PREFIX, run_id_of
from perdure.eventlog.filter import Filter
from perdure.runtime.kernel.intervals import cell
from perdure.runtime.kernel.listing import Listing
from perdure.runtime.kernel.table import Table
from perdure.runtime.runs.run_filter import FOREVER, GROUPS, NOT_ENDED, Span

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from perdure.eventlog.record import Mark, Record
    from perdure.runtime.kernel.listing import Askable
    from perdure.runtime.kernel.table import Rows
    from perdure.runtime.runs.run_filter import RunFilter

MAX_PAGE: Final = 501  # the largest page, and one more that tells whether it is the last
BLOCK: Final = 12  # bits: times of creation are summed up for so many positions together


def _unless_null(column: str) -> str:
    return f" WHERE {column} NOT NULL" if column in {"task_id", "session_id"} else ""


_RUNS: Final = Table(
    name="runs",
    columns=(
        "position INTEGER",  # where it was created; by this all indexes are in order
        "run_id TEXT NOT NULL",
        "created_at INTEGER NOT NULL",
        "tenant TEXT NOT NULL",
        "plugin_id TEXT NOT NULL",
        "entry_id TEXT NOT NULL",
        "task_id TEXT",
        "session_id TEXT",
        "root_run_id TEXT NOT NULL",
        "started_by TEXT",
        "status TEXT NOT NULL",
        "since INTEGER NOT NULL",  # the position at which it came to this status
        "outcome TEXT NOT NULL",  # its status once it has ended
    ),
    key=("position",),
    changing=("status", "since", "outcome"),
    indexes=(
        "(run_id)",
        "(tenant, status)",
        *(f"(tenant, {', '.join(group)}, outcome){_unless_null(group[-1])}" for group in GROUPS),
        f"(outcome) WHERE outcome = '{NOT_ENDED}'",
    ),
)
_PAST: Final = Table(  # statuses that runs have left
    name="past",
    columns=(
        "tenant TEXT NOT NULL",
        "status TEXT NOT NULL",
        "cell INTEGER NOT NULL",
        "position INTEGER NOT NULL",  # of the run
        "begins INTEGER NOT NULL",
        "ends INTEGER NOT NULL",
    ),
    key=("tenant", "status", "cell", "position"),
)
_TOTALS: Final = Table(
    name="totals",
    columns=("status TEXT", "runs INTEGER NOT NULL"),
    key=("status",),
    changing=("runs",),
)
_TIMES: Final = Table(  # when the runs of a block of positions were created
    name="times",
    columns=("block INTEGER", "earliest INTEGER NOT NULL", "latest INTEGER NOT NULL"),
    key=("block",),
    changing=("earliest", "latest"),
)


class Listed(NamedTuple):
    """A run in a list: its id, and the position that pages go on from."""

    run_id: str
    position: int


class _Row(NamedTuple):
    """A run as the table has it."""

    position: int
    run_id: str
    created_at: int
    tenant: str
    plugin_id: str
    entry_id: str
    task_id: str | None
    session_id: str | None
    root_run_id: str
    started_by: str | None
    status: str
    since: int
    outcome: str


class _Change(NamedTuple):
    """A run comes to a status, or into being."""

    run_id: str
    position: int
    status: str
    created: RunCreated | None

    @property
    def outcome(self) -> str:
        return self.status if self.status in ENDED else NOT_ENDED


def _read(record: Record) -> _Change | None:
    found = record.metadata.fields
    if not found.get("changed") or not record.stream.startswith(RUN_PREFIX):
        return None
    created = RUN_EVENTS.decode(record) if record.name == RunCreated.event_name else None
    return _Change(run_id_of(record.stream), record.position, str(found["status"]), created)


def _fold(rows: Rows, changes: Sequence[_Change]) -> None:
    """Put each run once, however often it changes; one whose creation was passed is passed, too."""
    runs, past, totals = _known(rows, changes), list[tuple[Any, ...]](), Counter[str]()
    for change in changes:
        run = runs.get(change.run_id)
        if change.created is not None:
            runs[change.run_id] = _new(change, change.created)
        elif run is not None:
            place = cell(run.since, change.position)
            past.append((run.tenant, run.status, place, run.position, run.since, change.position))
            totals[run.status] -= 1
            runs[change.run_id] = run._replace(
                status=change.status, since=change.position, outcome=change.outcome
            )
        else:
            continue
        totals[change.status] += 1
    rows.put(_RUNS, runs.values())
    rows.put(_PAST, past)
    for status, count in rows.select("SELECT status, runs FROM totals") if totals else ():
        totals[status] += count
    rows.put(_TOTALS, totals.items())
    rows.put(_TIMES, _times(rows, changes))


def _known(rows: Rows, changes: Iterable[_Change]) -> dict[str, _Row]:
    """Give the runs that are known and change."""
    wanted = list({change.run_id for change in changes if change.created is None})
    places = ", ".join("?" * len(wanted))
    found = rows.select(f"SELECT * FROM runs WHERE run_id IN ({places})", wanted)  # noqa: S608
    return {row[1]: _Row(*row) for row in found}


def _new(change: _Change, created: RunCreated) -> _Row:
    return _Row(
        change.position,
        change.run_id,
        created.at,
        created.tenant,
        created.plugin_id,
        created.entry_id,
        created.task_id,
        created.session_id,
        created.root_run_id,
        created.started_by,
        change.status,
        change.position,
        change.outcome,
    )


def _times(rows: Rows, changes: Iterable[_Change]) -> Iterable[tuple[int, int, int]]:
    """Sum up when the runs of each block of positions were created."""
    blocks: dict[int, list[int]] = {}
    for change in changes:
        if change.created is not None:
            blocks.setdefault(change.position >> BLOCK, []).append(change.created.at)
    for block, times in blocks.items():
        known = rows.select("SELECT earliest, latest FROM times WHERE block = ?", (block,))
        times.extend(chain.from_iterable(known))
        yield block, min(times), max(times)


RUN_LISTING: Final = Listing(
    name="runs",
    version=3,
    tables=(_RUNS, _PAST, _TOTALS, _TIMES),
    where=Filter(fields={"changed": frozenset({True})}),
    read=_read,
    fold=_fold,
)


class RunIndex:
    """Lists of runs, each true at a place in the log."""

    def __init__(self, listing: Askable) -> None:
        """Ask the tables of the index."""
        self._listing = listing

    async def list(
        self,
        where: RunFilter,
        *,
        before: int | None = None,
        at: Mark | None = None,
        limit: int = 50,
    ) -> tuple[Sequence[Listed], Mark]:
        """List runs, newest first, that began before a position; say where this is true."""

        def query(database: sqlite3.Connection, past: int | None) -> list[Listed]:
            searches = where.searches(_span(database, where, before), past)
            if not searches:
                return []
            statement = " UNION ALL ".join(
                f"SELECT r.run_id, r.position FROM runs r WHERE {condition}"  # noqa: S608
                for condition, _ in searches
            )
            values = chain.from_iterable(values for _, values in searches)
            rows = database.execute(
                f"{statement} ORDER BY 2 DESC LIMIT ?", (*values, min(limit, MAX_PAGE))
            )
            return [Listed(*row) for row in rows]

        return await self._listing.ask(query, at)

    async def count(self, where: RunFilter, at: Mark | None = None) -> tuple[int, Mark]:
        """Count runs; say where this is true."""

        def query(database: sqlite3.Connection, past: int | None) -> int:
            counting = "SELECT count(*) FROM runs r WHERE "
            searches = where.searches(_span(database, where, None), past)
            counts = [database.execute(counting + each, values) for each, values in searches]
            return sum(count for (count,) in chain.from_iterable(counts))

        return await self._listing.ask(query, at)

    async def place(self) -> Mark:
        """Give a place at which lists can be asked for: the head of the log, if all is well."""
        _, at = await self._listing.ask(lambda *_: None)
        return at

    async def statuses(self) -> dict[str, int]:
        """Count runs by the status that they are in."""
        found, _ = await self._listing.ask(
            lambda database, _: dict(database.execute("SELECT * FROM totals WHERE runs > 0"))
        )
        return found

    async def open_runs(self, after: int = 0, at: Mark | None = None) -> Sequence[Listed]:
        """List runs that have not ended now, oldest first, a page after a position.

        Those created up to a place are all among them, if they have not ended.
        """
        statement = (
            f"SELECT run_id, position FROM runs WHERE outcome = '{NOT_ENDED}'"  # noqa: S608
            " AND position > ? ORDER BY position LIMIT ?"
        )
        found, _ = await self._listing.ask(
            lambda database, _: database.execute(statement, (after, MAX_PAGE)).fetchall(), at
        )
        return [Listed(*row) for row in found]

    async def find(self, beginning: str, tenant: str, limit: int) -> tuple[Sequence[str], Mark]:
        """List ids of runs that begin with a text, in their order; say where this is true."""
        statement = (
            "SELECT run_id FROM runs WHERE run_id >= ? AND run_id < ? AND +tenant = ?"
            " ORDER BY run_id LIMIT ?"
        )
        values = (beginning, beginning + chr(0x10FFFF), tenant, limit)
        found, at = await self._listing.ask(
            lambda database, _: database.execute(statement, values).fetchall()
        )
        return [run_id for (run_id,) in found], at


def _span(database: sqlite3.Connection, where: RunFilter, before: int | None) -> Span:
    """Say among which positions to look: those of blocks in which runs were created in time."""
    after, until = 0, FOREVER if before is None else before
    if where.created_from is not None:
        statement = "SELECT min(block) FROM times WHERE latest >= ?"
        (first,) = database.execute(statement, (where.created_from,)).fetchone()
        after = until if first is None else (first << BLOCK) - 1
    if where.created_until is not None:
        statement = "SELECT max(block) FROM times WHERE earliest < ?"
        (last,) = database.execute(statement, (where.created_until,)).fetchone()
        until = 0 if last is None else min(until, (last + 1) << BLOCK)
    return Span(after, until)
