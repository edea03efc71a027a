"""Followers: one that keeps up, and many that have stopped reading.

Memory is measured in processes of their own: ``python -m tools.bench.eventlog_followers`` is one.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from perdure.eventlog import Append, StreamWrite
from tools.bench.benchmark import Benchmark, Figure, Setting, Sides, Target
from tools.bench.eventlog_append import APPENDERS, append_together, in_rounds
from tools.bench.measure import Sample, Stopwatch, latencies
from tools.bench.workload import new_events, opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perdure.eventlog import Batch, EventLog, Follow, NewEvent

_STALLED: Final = 20
_MISSED: Final = 50_000  # records that stalled followers do not take
_SEEN: Final = 1000  # records that they hold in their hands
_KIB: Final = 1024
_PER_SECOND: Final = 100
_SECONDS: Final = 3
_ROOT: Final = Path(__file__).resolve().parents[2]


# Stalled followers


@contextmanager
def _stalled(setting: Setting) -> Iterator[Sides]:
    """Open the sides of stalled-followers."""
    records = setting.size(_MISSED, APPENDERS)
    yield Sides(
        partial(_in_process, setting, _STALLED, records), partial(_in_process, setting, 0, records)
    )


def _in_process(setting: Setting, followers: int, records: int) -> Sample:
    """Measure in a process that has done nothing else."""
    with setting.scratch() as directory:
        command = [sys.executable, "-m", __name__, str(followers), str(records), str(directory)]
        child = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, check=True)
    return Sample(**json.loads(child.stdout))


async def measure_stalled(followers: int, records: int, directory: Path) -> Sample:
    """Append while followers hold their first batch; give how far memory has grown."""
    first, later = in_rounds(_SEEN // APPENDERS), in_rounds(records // APPENDERS)
    async with opened(directory / "log.db") as log, trio.open_nursery() as nursery:
        await append_together(log, first)
        before = _resident()
        for _ in range(followers):
            await nursery.start(_take_one_batch_and_stall, log)
        with Stopwatch() as watch:
            await append_together(log, later, start=len(first))
        gc.collect()
        grown = _resident() - before
        nursery.cancel_scope.cancel()
    return watch.sample(len(later) * APPENDERS, {"grown": grown / _KIB})


async def _take_one_batch_and_stall(
    log: EventLog, task_status: trio.TaskStatus[Batch] = trio.TASK_STATUS_IGNORED
) -> None:
    """Be a follower whose client no longer reads."""
    follow = await log.follow()
    batch = await follow.next_batch()
    task_status.started(batch)
    await trio.sleep_forever()  # with both the follower and its batch in hand


def _resident() -> int:
    """The bytes of memory that this process has in use."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _per_follower(ours: Sample, baseline: Sample) -> Mapping[str, float]:
    """What one stalled follower costs."""
    return {"each": (ours.figures["grown"] - baseline.figures["grown"]) / _STALLED}


# Live lag


@contextmanager
def _live(setting: Setting) -> Iterator[Sides]:
    """Open the sides of live-lag."""
    events = new_events(_PER_SECOND * setting.size(_SECONDS))
    yield Sides(
        partial(_paced, setting, events, follow=True),
        partial(_paced, setting, events, follow=False),
    )


def _paced(setting: Setting, events: Sequence[NewEvent], *, follow: bool) -> Sample:
    """Append at a steady pace; take latencies at a follower, or else at the appenders."""

    async def main() -> Sample:
        """Measure on an open log."""
        sent: dict[bytes, float] = {}
        received: dict[bytes, float] = {}
        async with opened(directory / "log.db") as log, trio.open_nursery() as nursery:
            with Stopwatch() as watch:
                if follow:
                    nursery.start_soon(_receive, await log.follow(), received, len(events))
                answered = await _send(log, events, sent)
        ends = received if follow else answered
        return watch.sample(len(events), latencies([ends[e] - sent[e] for e in sent]))

    with setting.scratch() as directory:
        return trio.run(main)


async def _send(
    log: EventLog, events: Sequence[NewEvent], sent: dict[bytes, float]
) -> Mapping[bytes, float]:
    """Append events at fixed times, however long each takes; give when each was answered."""
    answered: dict[bytes, float] = {}

    async def send(event: NewEvent, stream: str) -> None:
        """Append one event."""
        append = Append([StreamWrite(stream, 0, [event])])
        sent[event.event_id] = time.perf_counter()
        await log.append(append)
        answered[event.event_id] = time.perf_counter()

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number, event in enumerate(events):
            await trio.sleep_until(start + number / _PER_SECOND)
            nursery.start_soon(send, event, f"run/{number}")
    return answered


async def _receive(follow: Follow, received: dict[bytes, float], number: int) -> None:
    """Note when each record arrives."""
    while len(received) < number:
        batch = await follow.next_batch()
        now = time.perf_counter()
        received.update((record.event_id, now) for record in batch.records)


STALLED: Final = Benchmark(
    name="stalled-followers",
    title="20 followers hold one batch and read no further while a log grows",
    baseline="the same appends with no follower, in a process of its own",
    prepare=_stalled,
    counted="appends",
    figures=[
        Figure("grown", "memory grown, KiB"),
        Figure("each", "KiB per follower", Target("<=", 64, of="ours")),
    ],
    compare=_per_follower,
    rounds=3,
)
LIVE_LAG: Final = Benchmark(
    name="live-lag",
    title="100 events a second: from calling append to a follower's hands",
    baseline="from calling append to its answer, at the same pace, with no follower",
    prepare=_live,
    figures=[Figure("p50", "p50 latency, ms"), Figure("p99", "p99 latency, ms")],
    rounds=3,
)


def _main() -> None:
    """Measure in this process and print the sample."""
    followers, records, directory = sys.argv[1:]
    sample = trio.run(measure_stalled, int(followers), int(records), Path(directory))
    print(json.dumps(asdict(sample)))


if __name__ == "__main__":
    _main()
