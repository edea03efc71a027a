"""The index of runs, held against the plainest model of it, and against its own cost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.actors.run.status import TRANSITIONS, Status
from perdure.eventlog.record import Mark, Record
from perdure.runtime.kernel.completion import completed
from perdure.runtime.kernel.listing import ListingFile
from perdure.runtime.kernel.listing_overlay import StoredListing
from perdure.runtime.kernel.projection import place_in
from perdure.runtime.runs.index import BLOCK, RUN_LISTING, RunIndex
from perdure.runtime.runs.run_filter import RunFilter
from tests.fuzz import examples
from tests.runtime.runs.run_records import Happening, recorded, stored

Result = TypeVar("Result")
Query = Callable[[sqlite3.Connection, int | None], Result]
COLUMNS = ("plugin_id", "entry_id", "task_id", "session_id", "root_run_id", "started_by")

MOVES = {status: {*moves.values()} - {status} for status, moves in TRANSITIONS.items()}


class Known(NamedTuple):
    """A run as the model knows it at a position."""

    run_id: str
    position: int
    columns: dict[str, Any]
    status: str


class Model:
    """All runs at any position: a walk along everything that happened."""

    def __init__(self, happenings: Sequence[Happening]) -> None:
        """Know all that happens."""
        self._happenings = happenings

    def runs(self, at: int) -> list[Known]:
        """Give the runs at a position, newest first."""
        found: dict[str, Known] = {}
        for position, (run_id, status, columns) in enumerate(self._happenings[:at], 1):
            known = found.get(run_id) or Known(run_id, position, columns, status)
            found[run_id] = known._replace(status=status)
        return sorted(found.values(), key=lambda run: -run.position)

    def matching(self, where: RunFilter, at: int) -> list[str]:
        """Give the ids that match at a position, newest first."""
        runs = self.runs(at)
        newest = {run.columns["root_run_id"]: run.run_id for run in reversed(runs)}
        return [
            run.run_id
            for run in runs
            if run.columns["tenant"] == where.tenant
            and all(getattr(where, name) in {None, run.columns.get(name)} for name in COLUMNS)
            and (where.statuses is None or run.status in where.statuses)
            and (where.created_from is None or run.columns["at"] >= where.created_from)
            and (where.created_until is None or run.columns["at"] < where.created_until)
            and not (where.top_level and run.columns["started_by"] is not None)
            and (not where.newest or newest[run.columns["root_run_id"]] == run.run_id)
        ]


class FileAsked:
    """A file that is asked directly, as a live listing asks it."""

    def __init__(self, tables: ListingFile) -> None:
        """Take over an open file."""
        self.tables = tables
        self.steps = 0

    async def ask(self, query: Query[Result], at: Mark | None = None) -> tuple[Result, Mark]:
        """Answer, and count how many steps SQLite takes."""
        with self.tables.reading() as database:
            place = place_in(database)
            database.set_progress_handler(self._step, 1)
            past = at.position if at is not None and at < place else None
            return query(database, past), at or place

    def _step(self) -> bool:
        self.steps += 1
        return False


@contextmanager
def filled(path: Path | str, records: Sequence[Record], batch: int) -> Iterator[FileAsked]:
    """Give a file that took in records, so many at a time."""
    with closing(ListingFile(RUN_LISTING, path)) as tables:
        tables.open()
        for first in range(0, len(records), batch):
            some = records[first : first + batch]
            tables.take_in(some, stored([]).generation, some[-1].mark)
        yield FileAsked(tables)


@st.composite
def histories(draw: st.DrawFn) -> list[Happening]:
    """Draw what happens to some runs of two tenants, in any order that runs can have."""
    happenings: list[Happening] = []
    standing: dict[str, tuple[Status, dict[str, Any]]] = {}
    for number in range(draw(st.integers(1, 40))):
        moving = [run_id for run_id, (status, _) in standing.items() if MOVES[status]]
        moves: bool = draw(st.booleans())
        if moving and moves:
            run_id = draw(st.sampled_from(moving))
            status, columns = standing[run_id]
            status = draw(st.sampled_from(sorted(MOVES[status])))
        else:
            run_id, status = f"run-{number}", Status.QUEUED
            tenant = draw(st.sampled_from(["t1", "t1", "t2"]))
            earlier = [name for name, (_, had) in standing.items() if had["tenant"] == tenant]
            columns = {
                "tenant": tenant,
                "plugin_id": draw(st.sampled_from(["p1", "p2"])),
                "entry_id": draw(st.sampled_from(["e1", "e2"])),
                "task_id": draw(st.sampled_from([None, "k1"])),
                "session_id": draw(st.sampled_from([None, "s1"])),
                "root_run_id": draw(st.sampled_from([run_id, *earlier])),
                "started_by": draw(st.sampled_from([None, *earlier])),
                "at": draw(st.integers(0, 10)),  # clocks go backwards, too
            }
        standing[run_id] = (status, columns)
        happenings.append(Happening(run_id, status.value, columns))
    return happenings


STATUSES = st.none() | st.frozensets(st.sampled_from([each.value for each in Status]))
FILTERS = st.builds(
    RunFilter,
    tenant=st.sampled_from(["t1", "t2"]),
    plugin_id=st.sampled_from([None, "p1", "p2"]),
    entry_id=st.sampled_from([None, "e1"]),
    task_id=st.sampled_from([None, None, "k1"]),
    session_id=st.sampled_from([None, None, "s1"]),
    root_run_id=st.sampled_from([None, None, "run-0"]),
    started_by=st.sampled_from([None, None, "run-0", "run-1"]),
    statuses=STATUSES,
    created_from=st.none() | st.integers(0, 10),
    created_until=st.none() | st.integers(0, 10),
    newest=st.booleans(),
    top_level=st.booleans(),
)


def pages(index: RunIndex, where: RunFilter, at: Mark | None, limit: int) -> list[str]:
    """Give all ids that match, page by page."""
    before, found = None, list[str]()
    while True:
        page, _ = completed(index.list(where, before=before, at=at, limit=limit))
        found.extend(listed.run_id for listed in page)
        if len(page) < limit:
            return found
        before = page[-1].position


def check(
    asked: Any, model: Model, records: Sequence[Record], where: RunFilter, limit: int
) -> None:
    """Compare lists and counts at many positions, and now, with the model."""
    index = RunIndex(asked)
    for record in records[::3]:
        wanted = model.matching(where, record.position)
        assert pages(index, where, record.mark, limit) == wanted
        assert completed(index.count(where, record.mark)) == (len(wanted), record.mark)
    assert pages(index, where, None, limit) == model.matching(where, len(records))


@examples(batch=3)
@given(histories(), FILTERS, st.integers(1, 41), st.integers(1, 5))
def test_every_list_is_that_of_the_model(
    happenings: list[Happening], where: RunFilter, batch: int, limit: int
) -> None:
    """Whatever happens, by any filter, at any position, on pages of any size (R81, R82)."""
    records, model = recorded(happenings), Model(happenings)
    with filled(":memory:", records, batch) as asked:
        check(asked, model, records, where, limit)
        index = RunIndex(asked)
        now = model.runs(len(records))
        assert completed(index.statuses()) == {
            status.value: count
            for status in Status
            if (count := sum(run.status == status for run in now))
        }
        opened = [run.run_id for run in reversed(now) if MOVES[Status(run.status)]]
        assert [listed.run_id for listed in completed(index.open_runs())] == opened


@examples(batch=4)
@given(histories(), FILTERS, st.data())
def test_a_reader_beside_lists_the_same(
    happenings: list[Happening], where: RunFilter, data: st.DataObject
) -> None:
    """However much the file lacks, which is folded over it."""
    records, model = recorded(happenings), Model(happenings)
    kept = data.draw(st.integers(0, len(records)))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        if kept:
            with filled(path, records[:kept], 7):
                pass
        with closing(StoredListing(RUN_LISTING, path, stored(records))) as listing:
            check(listing, model, records, where, 3)


# What it costs

WANTED = {
    "all": RunFilter(tenant="t"),
    "rare status": RunFilter(tenant="t", statuses=frozenset({"failed"})),
    "open": RunFilter(tenant="t", statuses=frozenset({"queued", "running"})),
    "plugin": RunFilter(tenant="t", plugin_id="rare"),
    "plugin and status": RunFilter(tenant="t", plugin_id="usual", statuses=frozenset({"failed"})),
    "entry": RunFilter(tenant="t", plugin_id="usual", entry_id="rare"),
    "task": RunFilter(tenant="t", task_id="task", statuses=frozenset({"succeeded"})),
    "session": RunFilter(tenant="t", session_id="session"),
    "root": RunFilter(tenant="t", root_run_id="run-10"),
    "started by": RunFilter(tenant="t", started_by="run-10"),
    "started by and status": RunFilter(
        tenant="t", started_by="run-0", statuses=frozenset({"failed"})
    ),
    "top level": RunFilter(tenant="t", top_level=True),
    "top level and status": RunFilter(
        tenant="t", top_level=True, statuses=frozenset({"succeeded"})
    ),
    "created": RunFilter(tenant="t", created_from=0, created_until=1 << BLOCK),
    "other tenant": RunFilter(tenant="other"),
    "newest": RunFilter(tenant="t", statuses=frozenset({"failed"}), newest=True),
}
STATUSES_OR_ALL = (None, frozenset({"failed", "running"}))
OLDEST = 200  # runs, among which are the rare ones


def busy_log(runs: int) -> list[Record]:
    """A log in which the first runs differ, and the others run one after the other."""
    happenings: list[Happening] = []
    for number in range(runs):
        rare = number < OLDEST and number % 10 == 0
        columns = {
            "tenant": "t",
            "plugin_id": "rare" if rare else "usual",
            "entry_id": "rare" if number < OLDEST and number % 10 == 5 else "usual",
            "task_id": "task" if rare else None,
            "session_id": "session" if rare else None,
            "started_by": None if rare else f"run-{10 if 10 < number < OLDEST else 0}",
        }
        end = "failed" if number < OLDEST and number % 10 == 5 else "succeeded"
        statuses = ["queued", "running", end] if 1 < number < runs - 1 else ["queued", "running"]
        happenings += [Happening(f"run-{number}", status, columns) for status in statuses]
    return recorded(happenings)


@pytest.fixture(scope="module")
def sizes() -> Iterator[tuple[tuple[FileAsked, list[Record]], tuple[FileAsked, list[Record]]]]:
    """Two indexes, one of which has many times as many runs."""
    few, many = busy_log(1_400), busy_log(9_000)
    with filled(":memory:", few, 1000) as small, filled(":memory:", many, 1000) as large:
        yield (small, few), (large, many)


def steps(asked: FileAsked, work: Callable[[RunIndex], Any]) -> tuple[int, Any]:
    """Count SQLite's steps, and give what came of them."""
    asked.steps = 0
    found = work(RunIndex(asked))
    return asked.steps, found


@pytest.mark.parametrize("name", WANTED)
@pytest.mark.parametrize("past", [False, True])
def test_a_list_costs_what_it_returns(sizes: Any, name: str, *, past: bool) -> None:
    """Many times as many runs take as many steps, now and in the middle of the past (G1)."""
    where = WANTED[name]

    def ask(index: RunIndex, at: Mark | None) -> Any:
        found, _ = completed(index.list(where, at=at, limit=20))
        counted = where.statuses is not None or name not in {"all", "created"}
        return len(found), completed(index.count(where, at))[0] if counted and not past else None

    (small, few), (large, _) = sizes
    at = few[3 * OLDEST + 100].mark if past else None  # the same place in both
    little, found = steps(small, lambda index: ask(index, at))
    much, same = steps(large, lambda index: ask(index, at))
    assert same == found
    assert much <= little * 1.2 + 50


@pytest.mark.parametrize("status", ["queued", "running", "succeeded"])
def test_a_list_of_the_middle_costs_the_same_at_any_size(sizes: Any, status: str) -> None:
    """Of those running then there are few, whatever ran before and after (G1)."""
    costs = []
    for asked, records in sizes:
        where = replace(WANTED["all"], statuses=frozenset({status}))
        at = records[len(records) // 2].mark

        def listed(index: RunIndex, where: RunFilter = where, at: Mark = at) -> Any:
            return completed(index.list(where, at=at, limit=20))

        cost, (found, _) = steps(asked, listed)
        costs.append((cost, len(found)))
    (little, few), (much, as_few) = costs
    assert few == as_few or {few, as_few} <= {0, 1, 2, 3}
    assert much <= little * 1.2 + 100


def test_what_has_not_ended_is_at_hand(sizes: Any) -> None:
    """What a host takes up, and the figures by status, cost the same at any size (G1)."""
    for work in (lambda index: completed(index.open_runs()), lambda i: completed(i.statuses())):
        costs = [steps(asked, work)[0] for asked, _ in sizes]
        assert costs[1] <= costs[0] * 1.2 + 20


def test_every_search_walks_one_index(sizes: Any) -> None:
    """No combination of filters makes SQLite scan a table or sort the runs of all times (G1)."""
    asked, records = sizes[0]
    stated = dict.fromkeys(COLUMNS, "x")
    with asked.tables.reading() as database:
        for chosen in product([False, True], repeat=len(COLUMNS)):
            columns = {name: stated[name] for name, on in zip(COLUMNS, chosen, strict=True) if on}
            for statuses, top_level in product(
                STATUSES_OR_ALL, [False, "started_by" not in columns]
            ):
                where = RunFilter(tenant="t", statuses=statuses, top_level=top_level, **columns)  # type: ignore[arg-type]
                check_plan(database, where, None)
                check_plan(database, where, len(records) // 2)


def check_plan(database: sqlite3.Connection, where: RunFilter, past: int | None) -> None:
    """Look at how SQLite would go about a list."""
    asked: list[tuple[str, Sequence[Any]]] = []

    class Spy:
        """Takes statements instead of the database."""

        def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
            asked.append((statement, values))
            return []

    class Asked:
        """Asks the spy."""

        async def ask(self, query: Any, at: Mark | None = None) -> Any:
            return query(Spy(), past), at

    completed(RunIndex(Asked()).list(where))
    for statement, values in asked:
        plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
        assert not [step for step in plan if step.startswith("SCAN") or "TEMP B-TREE" in step]
        searched = [step for step in plan if step.startswith("SEARCH r USING INDEX")]
        assert all("rowid>? AND rowid<?" in step for step in searched)
        assert searched
