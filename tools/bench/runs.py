"""Runs with one durable step: a hundred in flight, and one at a time."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from perdure import RunContext, entry, plugin
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.feature import open_run_node
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CreateRun
from tools.bench.benchmark import Benchmark, Figure, Setting, Sides, Target
from tools.bench.eventlog_append import append_alone
from tools.bench.measure import Sample, Stopwatch, latencies
from tools.bench.recorder import open_recorder, stored_events
from tools.bench.workload import new_events, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from perdure.runtime.execution.executor import Executor
    from perdure.runtime.runs.operations import Runs

IN_FLIGHT: Final = 100
_RUNS: Final = 2000
_ALONE: Final = 200
_LONG: Final = 3600.0
_EVENTS: Final = 4  # created, activated, the step, the end


@plugin("bench")
class Bench:
    """The entry that is measured."""

    @entry
    async def one(self, ctx: RunContext) -> None:
        """Do one durable step."""

        async def body() -> int:
            """Do next to nothing."""
            return 1

        await ctx.run.step("step", body)

    @entry
    async def wait(self, ctx: RunContext) -> None:
        """Be there until somebody ends it."""
        await ctx.run.sleep(_LONG)


@asynccontextmanager
async def _service(path: Path) -> AsyncIterator[tuple[Executor, Runs]]:
    """Open a log and everything above it."""
    async with (
        opened(path) as log,
        open_run_node(log, {"bench": declared(Bench)}, data=DataDir(path.parent)) as node,
    ):
        yield runs_of(node).executor, runs_of(node).runs


async def _one_after_another(executor: Executor, runs: Runs, number: int) -> list[float]:
    """Create runs and wait for the end of each; give the seconds each took."""
    request = CreateRun(plugin_id="bench", entry_id="one", args={})
    taken = []
    for _ in range(number):
        begun = time.perf_counter()
        created = await runs.create(LOCAL, request)
        await executor.end_of(created["run"]["run_id"])
        taken.append(time.perf_counter() - begun)
    return taken


def _many_ours(setting: Setting, each: int, in_flight: int) -> Sample:
    """Keep many runs in flight."""
    with setting.scratch() as directory:

        async def main() -> Sample:
            """Measure on an open service."""
            async with _service(directory / "log.db") as (executor, runs):
                with Stopwatch() as watch:
                    async with trio.open_nursery() as nursery:
                        for _ in range(in_flight):
                            nursery.start_soon(_one_after_another, executor, runs, each)
                total = each * in_flight
                return watch.sample(total, {"commits": executor.context.log.writer.commits / total})

        return trio.run(main)


def many_bare(setting: Setting, runs: int) -> Sample:
    """Give the bare recorder four events for each run, in batches of a hundred."""
    names = [f"run/{number}" for number in range(runs)]
    batches = [
        stored_events(names[i : i + IN_FLIGHT], version, new_events(IN_FLIGHT))
        for i in range(0, runs, IN_FLIGHT)
        for version in range(1, _EVENTS + 1)
    ]
    with setting.scratch() as directory, open_recorder(directory / "bare.db") as recorder:
        with Stopwatch() as watch:
            for batch in batches:
                recorder.insert_events(batch)
        return watch.sample(runs)


@contextmanager
def _many(in_flight: int, setting: Setting) -> Iterator[Sides]:
    """Open the sides of runs-100 and runs-1000."""
    each = setting.size(_RUNS // in_flight)
    yield Sides(
        partial(_many_ours, setting, each, in_flight),
        partial(many_bare, setting, each * in_flight),
    )


def _alone_ours(setting: Setting, number: int) -> Sample:
    """Run one thing at a time."""
    with setting.scratch() as directory:

        async def main() -> Sample:
            """Measure on an open service."""
            async with _service(directory / "log.db") as (executor, runs):
                with Stopwatch() as watch:
                    taken = await _one_after_another(executor, runs, number)
                return watch.sample(number, latencies(taken))

        return trio.run(main)


@contextmanager
def _alone(setting: Setting) -> Iterator[Sides]:
    """Open the sides of runs-1."""
    number = setting.size(_ALONE)
    events = new_events(number)
    yield Sides(partial(_alone_ours, setting, number), partial(append_alone, setting, events))


def _cpu_ratio(ours: Sample, bare: Sample) -> dict[str, float]:
    """Compare the CPU time of a run with that of its events."""
    return {"cpu_ratio": ours.cpu / bare.cpu}


def _within_reach(ours: Sample, append: Sample) -> dict[str, float]:
    """Tell how a run's latency stands to four lone appends and two milliseconds."""
    return {"reach": ours.figures["p50"] / (4 * append.figures["p50"] + 2)}


def _runs_many(in_flight: int, target: Target | None = None) -> Benchmark:
    """Give the benchmark of so many runs in flight."""
    return Benchmark(
        name=f"runs-{in_flight}",
        title=f"runs with one durable step, {in_flight:,} in flight, from create to their end",
        baseline="the library's bare recorder given four events a run in batches of 100",
        prepare=partial(_many, in_flight),
        counted="runs",
        figures=[
            Figure("commits", "commits per run", Target("<=", 0.2, of="ours")),
            Figure("cpu_ratio", "cpu, times the recorder's", target),
        ],
        compare=_cpu_ratio,
    )


RUNS_MANY: Final = _runs_many(IN_FLIGHT, Target("<=", 25, of="ours"))
RUNS_VERY_MANY: Final = _runs_many(10 * IN_FLIGHT)
RUNS_ONE: Final = Benchmark(
    name="runs-1",
    title="runs with one durable step, one at a time",
    baseline="a lone appender, one event after the other",
    prepare=_alone,
    counted="runs",
    figures=[
        Figure("p50", "p50 latency, ms"),
        Figure("p99", "p99 latency, ms"),
        Figure("reach", "p50 over 4 lone p50 + 2 ms", Target("<=", 1, of="ours")),
    ],
    compare=_within_reach,
)
