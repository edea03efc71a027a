"""Appending: many appenders at once, and one alone."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from perdure.eventlog import Append, StreamWrite
from tools.bench.benchmark import Benchmark, Figure, Setting, Sides, Target
from tools.bench.measure import Sample, Stopwatch, latencies
from tools.bench.recorder import open_recorder, stored_events
from tools.bench.workload import new_events, opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perdure.eventlog import EventLog, NewEvent

APPENDERS: Final = 100
_EACH: Final = 200
_LONE: Final = 1000
_STREAMS: Final = [f"run/{number}" for number in range(APPENDERS)]


async def append_each(log: EventLog, stream: str, events: Sequence[NewEvent], start: int) -> None:
    """Append events, each by itself, to a stream that stands at version ``start``."""
    for version, event in enumerate(events, start):
        await log.append(Append([StreamWrite(stream, version, [event])]))


async def append_together(
    log: EventLog, rounds: Sequence[Sequence[NewEvent]], start: int = 0
) -> None:
    """Append events from one task for each stream; each round holds one event for every task."""
    async with trio.open_nursery() as nursery:
        for stream, events in zip(_STREAMS, zip(*rounds, strict=True), strict=True):
            nursery.start_soon(append_each, log, stream, events, start)


def in_rounds(number: int) -> list[list[NewEvent]]:
    """Make events for all appenders, this many for each."""
    events = new_events(APPENDERS * number)
    return [events[i : i + APPENDERS] for i in range(0, len(events), APPENDERS)]


@contextmanager
def _many(setting: Setting) -> Iterator[Sides]:
    """Open the sides of append-100."""
    rounds = in_rounds(setting.size(_EACH))
    yield Sides(partial(_many_ours, setting, rounds), partial(_many_bare, setting, rounds))


def _many_ours(setting: Setting, rounds: Sequence[Sequence[NewEvent]]) -> Sample:
    """Append through the log."""
    with setting.scratch() as directory:

        async def main() -> Sample:
            """Measure on an open log."""
            async with opened(directory / "log.db") as log:
                with Stopwatch() as watch:
                    await append_together(log, rounds)
                appends = len(rounds) * APPENDERS
                return watch.sample(appends, {"commits": log.writer.commits / appends})

        return trio.run(main)


def _many_bare(setting: Setting, rounds: Sequence[Sequence[NewEvent]]) -> Sample:
    """Insert each round as one batch."""
    batches = [stored_events(_STREAMS, version, events) for version, events in enumerate(rounds, 1)]
    with setting.scratch() as directory, open_recorder(directory / "bare.db") as recorder:
        with Stopwatch() as watch:
            for batch in batches:
                recorder.insert_events(batch)
        return watch.sample(len(batches) * APPENDERS, {"commits": 1 / APPENDERS})


@contextmanager
def _lone(setting: Setting) -> Iterator[Sides]:
    """Open the sides of append-1."""
    events = new_events(setting.size(_LONE))
    yield Sides(partial(append_alone, setting, events), partial(_lone_raw, setting, events))


def append_alone(setting: Setting, events: Sequence[NewEvent]) -> Sample:
    """Append through the log and time each append."""
    with setting.scratch() as directory:

        async def main() -> Sample:
            """Measure on an open log."""
            seconds = []
            async with opened(directory / "log.db") as log:
                with Stopwatch() as watch:
                    for version, event in enumerate(events):
                        start = time.perf_counter()
                        await log.append(Append([StreamWrite("run/1", version, [event])]))
                        seconds.append(time.perf_counter() - start)
            return watch.sample(len(events), latencies(seconds))

        return trio.run(main)


def _lone_raw(setting: Setting, events: Sequence[NewEvent]) -> Sample:
    """Insert with SQLite and time each insert with its commit."""
    seconds = []
    with (
        setting.scratch() as directory,
        closing(sqlite3.connect(directory / "raw.db", isolation_level=None)) as database,
    ):
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute(
            "CREATE TABLE events (stream, version, name, body, UNIQUE (stream, version))"
        )
        with Stopwatch() as watch:
            for version, event in enumerate(events):
                start = time.perf_counter()
                row = ("run/1", version, event.name, event.body)
                database.execute("INSERT INTO events VALUES (?, ?, ?, ?)", row)
                seconds.append(time.perf_counter() - start)
    return watch.sample(len(events), latencies(seconds))


APPEND_MANY: Final = Benchmark(
    name="append-100",
    title="100 appenders of one event at a time on 100 streams",
    baseline="the library's bare recorder given the same events in batches of 100",
    prepare=_many,
    counted="appends",
    rate=Target(">=", 0.2),
    figures=[Figure("commits", "commits per append", Target("<=", 0.03, of="ours"))],
)
APPEND_ONE: Final = Benchmark(
    name="append-1",
    title="a lone appender, one event after the other",
    baseline="SQLite alone: an insert and a synced commit, in one thread",
    prepare=_lone,
    counted="appends",
    figures=[Figure("p50", "p50 latency, ms"), Figure("p99", "p99 latency, ms")],
)
