"""Recovery: a process that starts on a log with a thousand runs that another left behind.

The process is ``python -m tools.bench.recovery LOG``: it takes the runs up and ends when all have.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import copy
from typing import TYPE_CHECKING, Final

import trio

from perdure.actors.run.core import RUN, Run
from perdure.actors.run.events import RUN_EVENTS, Activated, RunCreated, RunEvent
from perdure.actors.run.stream import stream_of
from perdure.eventlog import Append, Metadata, StreamWrite
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.feature import open_run_node
from perdure.runtime.runs.part import runs_of
from tools.bench.benchmark import Benchmark, Figure, Setting, Sides, Target
from tools.bench.measure import Sample, Stopwatch
from tools.bench.runs import Bench
from tools.bench.workload import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.eventlog import EventLog

_PENDING: Final = 1000
_AT_ONCE: Final = 100
_ROOT: Final = Path(__file__).resolve().parents[2]


async def leave_behind(path: Path, pending: int) -> list[str]:
    """Write what a process leaves that dies with so many runs at work, each before its step."""
    async with opened(path) as log:
        writes = [_activated(log) for _ in range(pending)]
        for first in range(0, pending, _AT_ONCE):
            await log.append(Append(writes[first : first + _AT_ONCE]))
    return [write.stream for write in writes]


def _activated(log: EventLog) -> StreamWrite:
    """Give the stream of a run that was called and has done nothing yet."""
    env = log.env
    run_id = str(env.new_id())
    created = RunCreated(
        run_id=run_id,
        plugin_id="bench",
        entry_id="one",
        args={},
        tenant="local",
        principal="local",
        root_run_id=run_id,
        attempt=1,
        at=env.now(),
    )
    activated = Activated(host="gone", epoch=1, plugin_version="0", at=env.now())
    state: Run | None = None
    events = []
    history: tuple[RunEvent, ...] = (created, activated)
    for event in history:
        after = RUN.evolve(state, event)
        metadata = Metadata(fields=RUN.describe(state, after))
        events.append(
            RUN_EVENTS.encode(
                event, event_id=env.new_id().bytes, event_time=event.at, metadata=metadata
            )
        )
        state = after
    return StreamWrite(stream_of(run_id), 0, events)


async def take_up(path: Path) -> None:
    """Be a process that starts on a log, and return when nothing is left to do."""
    async with (
        opened(path) as log,
        open_run_node(log, {"bench": declared(Bench)}, data=DataDir(path.parent)) as node,
    ):
        await runs_of(node).executor.settled()


def _start_on(setting: Setting, log: Path, pending: int) -> Sample:
    """Start a process on a copy of a log and wait for its end."""
    with setting.scratch() as directory:
        mine = Path(copy(log, directory / "log.db"))
        with Stopwatch() as watch:
            subprocess.run([sys.executable, "-m", __name__, str(mine)], cwd=_ROOT, check=True)
        return watch.sample(max(1, pending), {"seconds": watch.wall})


@contextmanager
def _recovery(setting: Setting) -> Iterator[Sides]:
    """Open the sides of recovery."""
    pending = setting.size(_PENDING)
    with setting.scratch() as directory:
        full, empty = directory / "full.db", directory / "empty.db"
        trio.run(leave_behind, full, pending)
        trio.run(leave_behind, empty, 0)
        yield Sides(
            partial(_start_on, setting, full, pending), partial(_start_on, setting, empty, 0)
        )


RECOVERY: Final = Benchmark(
    name="recovery",
    title="a process that starts on 1,000 pending runs, from its spawn until all have ended",
    baseline="the same process on an empty log",
    prepare=_recovery,
    figures=[Figure("seconds", "seconds until all ended", Target("<=", 2, of="ours"))],
)

if __name__ == "__main__":
    trio.run(take_up, Path(sys.argv[1]))
