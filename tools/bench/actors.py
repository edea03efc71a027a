"""Actors: how fast one is rebuilt, and what one costs while it lives.

Memory is measured in processes of their own, ``python -m tools.bench.actors KIND COUNT DIR``.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tracemalloc
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from perdure import RunContext, entry, plugin
from perdure.actors import mailbox
from perdure.actors.folding import fold_stream
from perdure.actors.run.core import RUN
from perdure.actors.run.events import RUN_EVENTS, ExportAppended, StepRecorded
from perdure.eventlog import Append, SnapshotFile, SqliteStore, StreamWrite, open_log
from perdure.eventlog.env import RealEnv
from perdure.runtime.execution.limits import HostLimits
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.feature import open_run_node
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CreateRun
from tools.bench.benchmark import Benchmark, Figure, Setting, Sides, Target
from tools.bench.measure import MILLISECONDS, Sample, Stopwatch
from tools.bench.recorder import open_recorder, stored_events
from tools.bench.recovery import leave_behind
from tools.bench.workload import opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perdure.eventlog import EventLog, NewEvent

_EVENTS: Final = 10_000
_AT_ONCE: Final = 500
_ACTORS: Final = 2000
_RECORDS: Final = 4  # created, activated, asked, and the stage that says so
_KIB: Final = 1024
_WAITING: Final = "KiB of a run that waits"
_LIVE: Final = "KiB of a live idle actor"
_ROOT: Final = Path(__file__).resolve().parents[2]


# Rebuilding


def _happenings(number: int) -> list[NewEvent]:
    """Make what a long run is full of: steps and exports, in turns."""
    env = RealEnv()
    made = []
    for each in range(number):
        event: Any = StepRecorded(step=f"step-{each}", value={"rows": each}, at=env.now())
        if each % 2:
            count = each // 2 + 1
            event = ExportAppended(
                number=count,
                type="text",
                text=f"found {each} of some documents",
                fingerprint=f"{each:024x}",
                occurrence=1,
                at=env.now(),
            )
        made.append(RUN_EVENTS.encode(event, event_id=env.new_id().bytes, event_time=env.now()))
    return made


async def _write_long_run(path: Path, events: Sequence[NewEvent]) -> str:
    """Write one run with many events; give its stream."""
    (stream,) = await leave_behind(path, 1)
    async with opened(path) as log:
        for first in range(0, len(events), _AT_ONCE):
            some = events[first : first + _AT_ONCE]
            await log.append(Append([StreamWrite(stream, first + 2, some)]))
    return stream


def _rebuild_ours(path: Path, stream: str, events: int) -> Sample:
    """Fold the whole stream, then from a snapshot."""

    async def main() -> Sample:
        """Measure on an open log."""
        env = RealEnv()
        store = SqliteStore.open_reader(path)
        with closing(SnapshotFile(path.with_name("snapshots.db"))) as snapshots:
            async with open_log(env, store) as log:
                await fold_stream(log, RUN, stream, at=None)  # the file is in memory now
                with Stopwatch() as whole:
                    await fold_stream(log, RUN, stream)
            async with open_log(env, store, snapshots=snapshots) as log:
                await _keep_snapshot(log, stream)
                with Stopwatch() as short:
                    await fold_stream(log, RUN, stream)
        store.close()
        figures = {"rate": events / whole.wall / 1e3, "snapshot": short.wall * MILLISECONDS}
        return whole.sample(events, figures)

    return trio.run(main)


async def _keep_snapshot(log: EventLog, stream: str) -> None:
    """Keep a snapshot where the actor would have kept its last."""
    state = await fold_stream(log, RUN, stream)
    if state is None or state.snapshot:
        return
    last = state.version - state.version % mailbox.SNAPSHOT_EVERY
    (record, *_) = (await log.read_stream(stream, after=last - 1)).records
    then = await fold_stream(log, RUN, stream, at=record.mark)
    if then is not None:
        await log.save_snapshot(
            stream, last, record.event_id, fold=RUN.fold, state=RUN.freeze(then.state)
        )


def _rebuild_bare(path: Path, stream: str, events: int) -> Sample:
    """Have the bare recorder select the same events, and decode nothing."""
    with open_recorder(path) as recorder:
        with Stopwatch() as watch:
            recorder.select_events(stream)
        return watch.sample(events)


@contextmanager
def _rebuild(setting: Setting) -> Iterator[Sides]:
    """Open the sides of rebuild."""
    number = setting.size(_EVENTS, _AT_ONCE)
    events = _happenings(number)
    with setting.scratch() as directory:
        path, bare = directory / "log.db", directory / "bare.db"
        stream = trio.run(_write_long_run, path, events)
        with open_recorder(bare) as recorder:
            for version, event in enumerate(events, 1):
                recorder.insert_events(stored_events([stream], version, [event]))
        yield Sides(
            partial(_rebuild_ours, path, stream, number),
            partial(_rebuild_bare, bare, stream, number),
        )


# Memory


@plugin("memory")
class Patient:
    """An entry that waits."""

    @entry
    async def wait(self, ctx: RunContext) -> None:
        """Wait for an answer that never comes."""
        await ctx.run.ask("well?")


async def measure_actors(number: int, directory: Path) -> dict[str, float]:
    """Let runs wait for answers, then drop what can be dropped; give KiB for each."""
    async with (
        opened(directory / "log.db") as log,
        open_run_node(
            log,
            {"memory": declared(Patient)},
            data=DataDir(directory),
            limits=HostLimits(runs=number),
        ) as node,
    ):
        request = CreateRun(plugin_id="memory", entry_id="wait", args={})
        before = _traced()
        for _ in range(number):
            await runs_of(node).runs.create(LOCAL, request)
        follow = await log.follow()
        while follow.mark.position < number * _RECORDS:
            await follow.next_batch()
        waiting = _traced()
        runs_of(node).executor.drain()
        await runs_of(node).executor.settled()
        live = _traced()
        runs_of(node).executor.runs.let_go()
        passivated = _traced()
    return {
        "waiting": (waiting - passivated) / number / _KIB,
        "live": (live - passivated) / number / _KIB,
        "passivated": (passivated - before) / number / _KIB,
    }


async def measure_tasks(number: int, _directory: Path) -> dict[str, float]:
    """Let bare tasks sleep; give KiB for each."""
    before = _traced()
    async with trio.open_nursery() as nursery:
        for _ in range(number):
            nursery.start_soon(trio.sleep_forever)
        await trio.sleep(0.1)
        asleep = _traced() - before
        nursery.cancel_scope.cancel()
    return {"waiting": asleep / number / _KIB}


def _traced() -> int:
    """Give the bytes that Python has allocated, and that are in use."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _in_process(setting: Setting, kind: str, number: int) -> Sample:
    """Measure in a process that has done nothing else."""
    with setting.scratch() as directory, Stopwatch() as watch:
        command = [sys.executable, "-m", __name__, kind, str(number), str(directory)]
        child = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, check=True)
    return watch.sample(number, json.loads(child.stdout))


@contextmanager
def _memory(setting: Setting) -> Iterator[Sides]:
    """Open the sides of actor-memory."""
    number = setting.size(_ACTORS, 100)
    yield Sides(
        partial(_in_process, setting, "actors", number),
        partial(_in_process, setting, "tasks", number),
    )


REBUILD: Final = Benchmark(
    name="rebuild",
    title="an actor of 10,000 events is rebuilt, from its first record and from a snapshot",
    baseline="the library's bare recorder selects the same events and decodes nothing",
    prepare=_rebuild,
    counted="events",
    figures=[
        Figure("rate", "events/s, thousands", Target(">=", 100, of="ours")),
        Figure("snapshot", "with a snapshot, ms"),
    ],
)
MEMORY: Final = Benchmark(
    name="actor-memory",
    title="what a run costs that waits for an answer, its actor alone, and what is left of it",
    baseline="a bare task that sleeps",
    prepare=_memory,
    rounds=1,
    compared=(_WAITING, _LIVE),  # its time is mostly that of tracing allocations
    figures=[
        Figure("waiting", _WAITING),
        Figure("live", _LIVE, Target("<=", 16, of="ours")),
        Figure("passivated", "KiB left when passivated"),
    ],
)

if __name__ == "__main__":
    tracemalloc.start()
    measure = {"actors": measure_actors, "tasks": measure_tasks}[sys.argv[1]]
    print(json.dumps(trio.run(measure, int(sys.argv[2]), Path(sys.argv[3]))))
