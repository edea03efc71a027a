"""Status while a server is busy. The load comes from a process of its own, which this is too."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.bench.benchmark import Benchmark, Figure, Setting, Sides, Target
from tools.bench.measure import Sample, latencies
from tools.bench.runs import IN_FLIGHT
from tools.bench.served_runs import ONE_STEP, keep_in_flight
from tools.bench.server import Served, ServerWatch, served
from tools.bench.socket_client import SocketClient

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOKS: Final = 1000
_PAUSE: Final = 0.002  # seconds between two looks: people do not ask without end
_PORTION: Final = 500  # runs
_ROOT: Final = Path(__file__).resolve().parents[2]


@contextmanager
def _sides(setting: Setting) -> Iterator[Sides]:
    """Open the sides of status-under-load: look at a run that has ended, and at one that waits."""
    looks = setting.size(_LOOKS, 100)
    with (
        setting.scratch() as directory,
        served(directory) as server,
        SocketClient(server.port) as client,
    ):
        keep_in_flight(client, _PORTION, IN_FLIGHT)
        requests = (ONE_STEP, {**ONE_STEP, "entry_id": "wait", "mode": "async"})
        answers = [client.call("runs.create", **request) for request in requests]
        runs = [answer["ok"]["run"]["run_id"] for answer in answers]
        yield Sides(
            partial(_under_load, server, client, runs, looks),
            partial(_look, server, client, runs, looks),
        )


def _under_load(server: Served, client: SocketClient, runs: list[str], looks: int) -> Sample:
    """Look while a hundred runs are in flight."""
    command = [sys.executable, "-m", __name__, str(server.port)]
    with subprocess.Popen(
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as load:
        assert load.stdout is not None  # noqa: S101 - asked for
        load.stdout.readline()  # it is under way
        sample = _look(server, client, runs, looks)
        load.kill()
    return sample


def _look(server: Served, client: SocketClient, runs: list[str], looks: int) -> Sample:
    """Ask for the status of runs, in turns."""
    taken = []
    with ServerWatch(server) as watch:
        for number in range(looks):
            begun = time.perf_counter()
            answer = client.call("runs.get", run_id=runs[number % len(runs)])
            taken.append(time.perf_counter() - begun)
            if "ok" not in answer:
                raise RuntimeError(f"no status: {answer}")
            time.sleep(_PAUSE)
    return watch.sample(looks, latencies(taken))


def _load(port: int) -> None:
    """Keep a hundred runs in flight for ever; say when it has begun."""
    with SocketClient(port) as client:
        while True:
            keep_in_flight(client, _PORTION, IN_FLIGHT)
            print(flush=True)


STATUS: Final = Benchmark(
    name="status-under-load",
    title="runs.get on a second WebSocket while 100 runs are in flight on the first",
    baseline="the same on a server that has nothing else to do",
    prepare=_sides,
    figures=[
        Figure("p50", "p50 latency, ms"),
        Figure("p99", "p99 latency, ms", Target("<=", 25, of="ours")),
    ],
    rounds=3,
)

if __name__ == "__main__":
    _load(int(sys.argv[1]))
