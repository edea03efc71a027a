"""Finding a place in a large log: by an instant, and by a cursor."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from tools.bench.benchmark import Benchmark, Figure, Setting, Sides, Target
from tools.bench.large_log import large_log, small_log
from tools.bench.measure import Sample, Stopwatch, latencies
from tools.bench.workload import opened

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from perdure.eventlog import EventLog, Mark

    Search = Callable[[EventLog, random.Random], Awaitable[Callable[[], Awaitable[Mark]]]]

_SEARCHES: Final = 500
_FIGURES: Final = (
    Figure("p50", "p50 latency, ms", Target("<=", 2)),
    Figure("p99", "p99 latency, ms"),
)


async def _by_instant(log: EventLog, chance: random.Random) -> Callable[[], Awaitable[Mark]]:
    """Choose an instant of the log's life."""
    first = (await log.read_all(limit=1)).records[0]
    last = (await log.read_all(after=(await log.head()).position - 1)).records[0]
    return partial(log.mark_before, chance.randint(first.commit_time, last.commit_time))


async def _by_cursor(log: EventLog, chance: random.Random) -> Callable[[], Awaitable[Mark]]:
    """Choose the cursor of some record."""
    position = chance.randrange((await log.head()).position)
    record = (await log.read_all(after=position, limit=1)).records[0]
    return partial(log.resolve, log.cursor(record.mark))


@contextmanager
def _sides(search: Search, setting: Setting) -> Iterator[Sides]:
    """Search in two logs with the same code."""
    searches = setting.size(_SEARCHES)
    yield Sides(
        partial(_searches, search, large_log(setting), searches),
        partial(_searches, search, small_log(setting), searches),
    )


def _searches(search: Search, path: Path, number: int) -> Sample:
    """Search for so many random places and time each search."""

    async def main() -> Sample:
        """Measure on an open log."""
        chance = random.Random(number)
        seconds = []
        async with opened(path) as log:
            prepared = [await search(log, chance) for _ in range(number)]
            with Stopwatch() as watch:
                for find in prepared:
                    start = time.perf_counter()
                    await find()
                    seconds.append(time.perf_counter() - start)
        return watch.sample(number, latencies(seconds))

    return trio.run(main)


INSTANT: Final = Benchmark(
    name="instant",
    title="the last record before a random instant, in a large log",
    baseline="the same in a log of 1000 records",
    prepare=partial(_sides, _by_instant),
    counted="searches",
    figures=_FIGURES,
)
CURSOR: Final = Benchmark(
    name="cursor",
    title="the place of a random cursor, older than the tail, in a large log",
    baseline="the same in a log of 1000 records",
    prepare=partial(_sides, _by_cursor),
    counted="searches",
    figures=_FIGURES,
)
