"""Entries in processes: how fast they start, how much they can say, how soon they are dead."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from perdure import RunContext, entry, plugin
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.node import Node
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.process.pool import Pool
from perdure.runtime.runs.feature import open_run_node
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CancelRun, CreateRun
from tools.bench.benchmark import Benchmark, Figure, Setting, Sides
from tools.bench.measure import MILLISECONDS, Sample, Stopwatch, latencies, quantile
from tools.bench.process_plugin import Processes
from tools.bench.workload import opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

_STARTS: Final = 20
_MESSAGES: Final = 20_000
_CANCELS: Final = 20


@plugin("bench-inline")
class Inline:
    """The same, inline."""

    @entry
    async def says(self, ctx: RunContext, messages: int) -> None:
        """Report as fast as it can."""
        for number in range(messages):
            ctx.run.progress(number / messages)
            if number % 100 == 0:
                await trio.lowlevel.checkpoint()


@asynccontextmanager
async def _node(path: Path) -> AsyncIterator[Node]:
    """Open a log and everything above it."""
    plugins = {made.id: made for made in map(declared, (Processes, Inline))}
    async with (
        opened(path) as log,
        open_run_node(log, plugins, data=DataDir(path.parent)) as node,
    ):
        yield node


async def _run(node: Node, name: str, **args: Any) -> float:
    """Run an entry to its end; give the seconds it took."""
    begun = time.perf_counter()
    plugin_id, _, entry_id = name.partition(".")
    request = CreateRun(plugin_id=plugin_id, entry_id=entry_id, args=args)
    created = await runs_of(node).runs.create(LOCAL, request)
    ended = await runs_of(node).executor.end_of(created["run"]["run_id"])
    if ended.state.error is not None:
        raise RuntimeError(ended.state.error.message)
    return time.perf_counter() - begun


def _start_ours(setting: Setting, number: int) -> Sample:
    """Start processes anew, then run in one that is warm."""
    with setting.scratch() as directory:

        async def main() -> Sample:
            """Measure on an open node."""
            async with _node(directory / "log.db") as node:
                pool, cold = runs_of(node).executor.processes, []
                assert isinstance(pool, Pool)  # noqa: S101 - a node has one
                with Stopwatch() as watch:
                    for _ in range(number):
                        cold.append(await _run(node, "bench-process.nothing"))
                        await pool.let_go()
                await _run(node, "bench-process.nothing")
                warm = [await _run(node, "bench-process.nothing") for _ in range(number)]
                figures = {"warm": quantile(warm, 0.5) * MILLISECONDS, **latencies(cold)}
                return watch.sample(number, figures)

        return trio.run(main)


def _start_bare(number: int) -> Sample:
    """Start the interpreter, and nothing else."""
    taken = []
    with Stopwatch() as watch:
        for _ in range(number):
            begun = time.perf_counter()
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            taken.append(time.perf_counter() - begun)
    return watch.sample(number, latencies(taken))


def _say(setting: Setting, name: str, messages: int) -> Sample:
    """Let an entry say much."""
    with setting.scratch() as directory:

        async def main() -> Sample:
            """Measure on an open node, in a process that is warm."""
            async with _node(directory / "log.db") as node:
                await _run(node, "bench-process.nothing")
                with Stopwatch() as watch:
                    await _run(node, name, messages=messages)
                return watch.sample(messages)

        return trio.run(main)


def _cancel(setting: Setting, number: int) -> Sample:
    """Force runs to end, and wait until their processes are dead."""
    with setting.scratch() as directory:

        async def main() -> Sample:
            """Measure on an open node."""
            async with _node(directory / "log.db") as node:
                with Stopwatch() as watch:
                    taken = [await _cancel_one(node) for _ in range(number)]
                return watch.sample(number, latencies(taken))

        return trio.run(main)


async def _cancel_one(node: Node) -> float:
    """Start an entry that stays, cancel it by force, wait for the end of its process."""
    request = CreateRun(plugin_id="bench-process", entry_id="stays", args={})
    run_id = (await runs_of(node).runs.create(LOCAL, request))["run"]["run_id"]
    following = await node.log.follow(await node.log.head())
    while not any(b"here" in record.body for record in (await following.next_batch()).records):
        pass
    begun = time.perf_counter()
    await runs_of(node).runs.cancel(LOCAL, CancelRun(run_id=run_id, force=True))
    await runs_of(node).executor.settled()
    return time.perf_counter() - begun


@contextmanager
def _starts(setting: Setting) -> Iterator[Sides]:
    """Open the sides of process-start."""
    number = setting.size(_STARTS, 3)
    yield Sides(partial(_start_ours, setting, number), partial(_start_bare, number))


@contextmanager
def _messages(setting: Setting) -> Iterator[Sides]:
    """Open the sides of process-messages."""
    number = setting.size(_MESSAGES, 100)
    yield Sides(
        partial(_say, setting, "bench-process.says", number),
        partial(_say, setting, "bench-inline.says", number),
    )


@contextmanager
def _cancels(setting: Setting) -> Iterator[Sides]:
    """Open the sides of process-cancel."""
    number = setting.size(_CANCELS, 3)
    yield Sides(partial(_cancel, setting, number), partial(_start_bare, number))


PROCESS_START: Final = Benchmark(
    name="process-start",
    title="a run in a process, started for it and warm, from create to its end",
    baseline="the bare interpreter starts and ends",
    prepare=_starts,
    counted="runs",
    rounds=3,
    figures=[
        Figure("p50", "cold p50, ms"),
        Figure("p99", "cold p99, ms"),
        Figure("warm", "warm p50, ms"),
    ],
)
PROCESS_MESSAGES: Final = Benchmark(
    name="process-messages",
    title="reports of one entry in a process",
    baseline="the same reports of an inline entry",
    prepare=_messages,
    counted="messages",
    rounds=3,
)
PROCESS_CANCEL: Final = Benchmark(
    name="process-cancel",
    title="a forced cancel, until the process is dead and its run has ended",
    baseline="the bare interpreter starts and ends",
    prepare=_cancels,
    rounds=3,
    figures=[Figure("p50", "p50, ms"), Figure("p99", "p99, ms")],
)
