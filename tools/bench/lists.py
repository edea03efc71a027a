"""Lists of runs: what they cost among a million runs, and among clients that come and go."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from perdure.eventlog import MemoryStore, RealEnv, open_log
from perdure.eventlog.record import Mark
from perdure.runtime.kernel.completion import completed
from perdure.runtime.kernel.live_listing import LiveListing
from perdure.runtime.runs.index import RunIndex
from perdure.runtime.runs.run_filter import RunFilter
from tools.bench.benchmark import Benchmark, Figure, Setting, Sides, Target
from tools.bench.listed_runs import APART, FEWER_RUNS, RUNS, TENANT, index_of
from tools.bench.measure import Sample, Stopwatch, latencies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perdure.runtime.kernel.listing import ListingFile, Query

Result = TypeVar("Result")
_QUERIES: Final = 300
_CLIENTS: Final = 30
_ALL: Final = RunFilter(tenant=TENANT)
_FAILED: Final = RunFilter(tenant=TENANT, statuses=frozenset({"failed"}))
_OPEN: Final = RunFilter(
    tenant=TENANT, statuses=frozenset({"queued", "running", "cancel_requested"})
)


class _Asked:
    """The tables of an index, asked at once."""

    def __init__(self, tables: ListingFile) -> None:
        self._tables = tables

    async def ask(self, query: Query[Result], at: Mark | None = None) -> tuple[Result, Mark]:
        with self._tables.reading() as database:
            return query(database, None if at is None else at.position), at or Mark(0, b"")


def _listed(where: RunFilter, *, past: bool = False, limit: int = 50) -> Callable[..., int]:
    """Ask for a page, now or in the middle of the past."""

    def ask(index: RunIndex, runs: int) -> int:
        at = Mark(runs // 2 * APART, b"") if past else None
        return len(completed(index.list(where, at=at, limit=limit))[0])

    return ask


def _counted(where: RunFilter) -> Callable[..., int]:
    return lambda index, _: completed(index.count(where))[0]


def _created_long_ago(index: RunIndex, runs: int) -> int:
    where = RunFilter(tenant=TENANT, created_until=runs // 3 * APART)
    return len(completed(index.list(where))[0])


@contextmanager
def _sizes(ask: Callable[..., int], setting: Setting) -> Iterator[Sides]:
    """Ask two indexes with the same code."""
    many, few = setting.size(RUNS, FEWER_RUNS), FEWER_RUNS
    with (
        index_of(setting.directory, many) as large,
        index_of(setting.directory, few) as small,
    ):
        if (found := ask(RunIndex(_Asked(large)), many)) != ask(RunIndex(_Asked(small)), few):
            raise RuntimeError(f"the two sizes do not return as much: {found}")
        queries = setting.size(_QUERIES, 100)
        yield Sides(
            partial(_queries, ask, large, many, queries),
            partial(_queries, ask, small, few, queries),
        )


def _queries(ask: Callable[..., int], tables: ListingFile, runs: int, number: int) -> Sample:
    """Ask so often, and time each answer."""
    index, seconds = RunIndex(_Asked(tables)), []
    with Stopwatch() as watch:
        for _ in range(number):
            start = time.perf_counter()
            ask(index, runs)
            seconds.append(time.perf_counter() - start)
    return watch.sample(number, latencies(seconds))


def _row(name: str, title: str, ask: Callable[..., int]) -> Benchmark:
    return Benchmark(
        name=f"list-{name}",
        title=f"{title}, among 1,000,000 runs",
        baseline="the same among 10,000, which returns as much",
        prepare=partial(_sizes, ask),
        figures=[
            Figure("p50", "p50 latency, ms", Target("<=", 3)),
            Figure("p99", "p99 latency, ms"),
        ],
    )


# Clients that come and go


@contextmanager
def _crowd(setting: Setting) -> Iterator[Sides]:
    """List while thirty others open a list of all that is open and leave, and alone."""
    with index_of(setting.directory, setting.size(RUNS, FEWER_RUNS)) as tables:
        queries = setting.size(_QUERIES, 100)
        yield Sides(
            partial(trio.run, _beside, tables, queries, _CLIENTS),
            partial(trio.run, _beside, tables, queries, 0),
        )


async def _beside(tables: ListingFile, number: int, clients: int) -> Sample:
    seconds = []
    async with open_log(RealEnv(), MemoryStore()) as log, trio.open_nursery() as nursery:
        listing = LiveListing(log, tables)
        nursery.start_soon(listing.run)
        index = RunIndex(listing)
        await index.place()
        for client in range(clients):
            nursery.start_soon(_come_and_go, index, client)
        with Stopwatch() as watch:
            for _ in range(number):
                start = time.perf_counter()
                await index.list(_ALL)
                seconds.append(time.perf_counter() - start)
                await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    return watch.sample(number, latencies(seconds))


async def _come_and_go(index: RunIndex, client: int) -> None:
    while True:
        with trio.move_on_after(0.001 * (client % 5)):
            await index.list(_OPEN, limit=500)
        await trio.sleep(0.05)


_ROWS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("newest", "the newest 50 runs", _listed(_ALL)),
    ("status", "50 runs of a rare status", _listed(_FAILED)),
    (
        "plugin",
        "50 runs of a plugin and a status",
        _listed(RunFilter(tenant=TENANT, plugin_id="plugin-1", statuses=frozenset({"succeeded"}))),
    ),
    ("created", "the newest 50 runs created before an instant of long ago", _created_long_ago),
    ("at", "the newest 50 runs in the middle of the past", _listed(_ALL, past=True)),
    ("at-open", "all runs that were open in the middle of the past", _listed(_OPEN, past=True)),
    (
        "at-ended",
        "50 runs that had succeeded by the middle of the past",
        _listed(RunFilter(tenant=TENANT, statuses=frozenset({"succeeded"})), past=True),
    ),
    ("count", "the count of a bulk operation that finds 200 runs", _counted(_FAILED)),
    ("open", "the runs with which the channel `runs` begins", _listed(_OPEN, limit=500)),
)
LISTS: Final = (
    *(_row(*row) for row in _ROWS),
    Benchmark(
        name="list-crowd",
        title="the newest 50 runs while 30 clients open a list of 500 and leave",
        baseline="the same alone",
        prepare=_crowd,
        figures=[
            Figure("p50", "p50 latency, ms"),
            Figure("p99", "p99 latency, ms", Target("<=", 10)),
        ],
        rounds=3,
    ),
)
