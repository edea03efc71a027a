"""Runs with one durable step, from a client to their result, with so many in flight."""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tools.bench.benchmark import Benchmark, Figure, Setting, Sides, Target
from tools.bench.measure import Sample, latencies
from tools.bench.runs import IN_FLIGHT, many_bare
from tools.bench.server import Served, ServerWatch, served
from tools.bench.socket_client import SocketClient

if TYPE_CHECKING:
    from collections.abc import Iterator

ONE_STEP: Final[dict[str, Any]] = {
    "plugin_id": "bench",
    "entry_id": "one",
    "args": {},
    "mode": "sync",
}
_RUNS: Final = {100: 3000, 20: 2000, 1: 300}  # by how many are in flight
_BARE: Final = 1000  # runs at least, whose events the recorder is given: fewer are over at once
_WARM: Final = 300


def keep_in_flight(client: SocketClient, number: int, in_flight: int) -> list[float]:
    """Create runs, one whenever one has ended; give the seconds that each took."""
    begun: dict[int, float] = {}
    taken: list[float] = []

    def begin(first: int, count: int) -> None:
        """Create so many at once."""
        begun.update(dict.fromkeys(range(first, first + count), time.perf_counter()))
        client.send(*[_creation(n) for n in range(first, first + count)])

    begin(0, min(in_flight, number))
    created = len(begun)
    while begun:
        answer = client.receive()
        taken.append(time.perf_counter() - begun.pop(answer["id"]))
        if answer["ok"]["run"]["status"] != "succeeded":
            raise RuntimeError(f"a run has failed: {answer}")
        if created < number:
            begin(created, 1)
            created += 1
    return taken


def _creation(number: int) -> dict[str, Any]:
    """Ask for a run and its end."""
    return {"id": number, "call": "runs.create", "args": ONE_STEP}


@contextmanager
def _over_websocket(in_flight: int, setting: Setting) -> Iterator[Sides]:
    """Open the sides of ws-runs."""
    number = setting.size(_RUNS[in_flight], in_flight)
    with (
        setting.scratch() as directory,
        served(directory) as server,
        SocketClient(server.port) as client,
    ):
        keep_in_flight(client, _WARM, in_flight)
        yield Sides(
            partial(_ours, server, client, number, in_flight),
            partial(many_bare, setting, max(number, _BARE) // IN_FLIGHT * IN_FLIGHT),
        )


def _ours(server: Served, client: SocketClient, number: int, in_flight: int) -> Sample:
    """Measure a server while it does so many runs."""
    with ServerWatch(server) as watch:
        taken = keep_in_flight(client, number, in_flight)
    return watch.sample(number, latencies(taken))


def _cpu_ratio(ours: Sample, bare: Sample) -> dict[str, float]:
    """Compare the CPU time of a run with that of its events."""
    return {"cpu_ratio": (ours.cpu / ours.count) / (bare.cpu / bare.count)}


def _ws_runs(in_flight: int, target: Target | None = None) -> Benchmark:
    """Give the benchmark of so many runs in flight on one WebSocket."""
    return Benchmark(
        name=f"ws-runs-{in_flight}",
        title=f"runs with one durable step, {in_flight} in flight, client to result on a WebSocket",
        baseline="the library's bare recorder given four events a run in batches of 100",
        prepare=partial(_over_websocket, in_flight),
        counted="runs",
        figures=[
            Figure("p50", "p50 latency, ms"),
            Figure("p99", "p99 latency, ms"),
            Figure("cpu_ratio", "cpu, times the recorder's", target),
        ],
        compare=_cpu_ratio,
    )


WS_RUNS: Final = (_ws_runs(100, Target("<=", 40, of="ours")), _ws_runs(20), _ws_runs(1))
