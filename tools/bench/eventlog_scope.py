"""Reading a scope of a large log: fast when it is large, and cheap when it is small."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from tools.bench.benchmark import Benchmark, Figure, Setting, Sides, Target
from tools.bench.large_log import BUSY_SCOPE, SMALL_SCOPE, large_log, small_log, twin
from tools.bench.measure import Sample, Stopwatch, latencies
from tools.bench.recorder import open_recorder
from tools.bench.workload import opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perdure.eventlog import EventLog

_PAGE: Final = 1000
_READS: Final = 500


@contextmanager
def _busy(setting: Setting) -> Iterator[Sides]:
    """Open the sides of scope-busy."""
    yield Sides(partial(_busy_ours, large_log(setting)), partial(_busy_bare, twin(setting)))


def _busy_ours(path: Path) -> Sample:
    """Read the busy scope of the log."""

    async def main() -> Sample:
        """Measure on an open log."""
        async with opened(path) as log:
            with Stopwatch() as watch:
                read = await _read_whole(log, BUSY_SCOPE)
        return watch.sample(read)

    return trio.run(main)


async def _read_whole(log: EventLog, scope: str) -> int:
    """Read a scope page by page; give the number of its records."""
    after = read = 0
    while True:
        page = await log.read_scope(scope, after=after)
        read += len(page.records)
        if not page.more:
            return read
        after = page.records[-1].position


def _busy_bare(path: Path) -> Sample:
    """Read the recorder's stream of that name."""
    with open_recorder(path) as recorder:
        read = 0
        with Stopwatch() as watch:
            while page := recorder.select_events(BUSY_SCOPE, gt=read, limit=_PAGE):
                read += len(page)
    return watch.sample(read)


@contextmanager
def _small(setting: Setting) -> Iterator[Sides]:
    """Open the sides of scope-small: the same code on two logs."""
    reads = setting.size(_READS)
    yield Sides(
        partial(_small_reads, large_log(setting), reads),
        partial(_small_reads, small_log(setting), reads),
    )


def _small_reads(path: Path, reads: int) -> Sample:
    """Read the small scope again and again and time each read."""

    async def main() -> Sample:
        """Measure on an open log."""
        seconds = []
        async with opened(path) as log:
            with Stopwatch() as watch:
                for _ in range(reads):
                    start = time.perf_counter()
                    await log.read_scope(SMALL_SCOPE)
                    seconds.append(time.perf_counter() - start)
        return watch.sample(reads, latencies(seconds))

    return trio.run(main)


SCOPE_BUSY: Final = Benchmark(
    name="scope-busy",
    title="one scope with a tenth of a large log's records, read in pages",
    baseline="select_events of the bare recorder: one stream of as many events",
    prepare=_busy,
    counted="records",
)
SCOPE_SMALL: Final = Benchmark(
    name="scope-small",
    title="a scope of 10 records in a large log costs what it returns",
    baseline="the same scope in a log of 1000 records",
    prepare=_small,
    counted="reads",
    figures=[
        Figure("p50", "p50 latency, ms", Target("<=", 2)),
        Figure("p99", "p99 latency, ms"),
    ],
)
