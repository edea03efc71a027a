"""Replay: a whole log, read through ``follow`` and decoded into event classes."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from tools.bench.benchmark import Benchmark, Setting, Sides, Target
from tools.bench.large_log import large_log, twin
from tools.bench.measure import Sample, Stopwatch
from tools.bench.recorder import open_recorder
from tools.bench.workload import EVENTS, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perdure.eventlog import EventLog

_PAGE: Final = 1000


@contextmanager
def _sides(setting: Setting) -> Iterator[Sides]:
    """Make both files."""
    yield Sides(partial(_ours, large_log(setting)), partial(read_notifications, twin(setting)))


async def replay(log: EventLog) -> int:
    """Follow a log from its start to its end and decode every event; give their number."""
    decoded = 0
    async for batch in await log.follow():
        decoded += len([EVENTS.decode(record) for record in batch.records])
        if batch.live:
            break
    return decoded


def _ours(path: Path) -> Sample:
    """Replay a log that was opened just now."""

    async def main() -> Sample:
        """Measure on an open log."""
        async with opened(path) as log:  # anew, so that its tail is empty and the store is read
            with Stopwatch() as watch:
                decoded = await replay(log)
        return watch.sample(decoded)

    return trio.run(main)


def read_notifications(path: Path) -> Sample:
    """Read all notifications of the bare recorder."""
    with open_recorder(path) as recorder:
        last = read = 0
        with Stopwatch() as watch:
            while page := recorder.select_notifications(last, _PAGE, inclusive_of_start=False):
                read += len(page)
                last = page[-1].id
    return watch.sample(read)


REPLAY: Final = Benchmark(
    name="replay",
    title="a log read by follow from its start, each record decoded into its event class",
    baseline="select_notifications of the bare recorder, the same bodies in pages of 1000",
    prepare=_sides,
    counted="records",
    rate=Target(">=", 0.3),
)
