"""Runs with one durable step, from a client to their result, with so many in flight."""

from __future__ import annotations

import selectors
import time
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tools.bench.benchmark import Benchmark, Figure, Setting, Sides, Target
from tools.bench.http_client import HttpClient
from tools.bench.measure import Sample, latencies
from tools.bench.runs import IN_FLIGHT, many_bare
from tools.bench.server import Served, ServerWatch, served
from tools.bench.socket_client import SocketClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Prepare = Callable[[int, Setting], AbstractContextManager[Sides]]

ONE_STEP: Final[dict[str, Any]] = {
    "plugin_id": "bench",
    "entry_id": "one",
    "args": {},
    "mode": "sync",
}
_ONE_STEP_JSON: Final = msgspec.json.encode(ONE_STEP)
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


def create_in_turns(clients: Sequence[HttpClient], number: int) -> list[float]:
    """Create runs on all connections, each when its last has ended; give the seconds each took."""
    begun: dict[HttpClient, float] = {}
    taken: list[float] = []
    with selectors.DefaultSelector() as selector:

        def begin(client: HttpClient) -> None:
            """Create a run."""
            begun[client] = time.perf_counter()
            client.send("POST", "/runs", _ONE_STEP_JSON)

        for client in clients[:number]:
            selector.register(client.socket, selectors.EVENT_READ, client)
            begin(client)
        created = len(begun)
        while begun:
            for key, _ in selector.select():
                client = key.data
                status, body = client.receive()
                taken.append(time.perf_counter() - begun.pop(client))
                if b'"succeeded"' not in body:
                    raise RuntimeError(f"a run has failed: {status} {body!r}")
                if created < number:
                    begin(client)
                    created += 1
    return taken


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
        yield _sides(setting, server, partial(keep_in_flight, client, number, in_flight), number)


@contextmanager
def _over_http(in_flight: int, setting: Setting) -> Iterator[Sides]:
    """Open the sides of http-runs: each run in flight has a connection that is kept."""
    number = setting.size(_RUNS[in_flight], in_flight)
    with setting.scratch() as directory, served(directory) as server, ExitStack() as stack:
        clients = [stack.enter_context(HttpClient(server.port)) for _ in range(in_flight)]
        create_in_turns(clients, _WARM)
        yield _sides(setting, server, partial(create_in_turns, clients, number), number)


def _sides(setting: Setting, server: Served, load: Callable[[], list[float]], number: int) -> Sides:
    """Measure a server while it does so many runs, beside the recorder."""

    def ours() -> Sample:
        """Do one round."""
        with ServerWatch(server) as watch:
            taken = load()
        return watch.sample(number, latencies(taken))

    return Sides(ours, partial(many_bare, setting, max(number, _BARE) // IN_FLIGHT * IN_FLIGHT))


def _cpu_ratio(ours: Sample, bare: Sample) -> dict[str, float]:
    """Compare the CPU time of a run with that of its events."""
    return {"cpu_ratio": (ours.cpu / ours.count) / (bare.cpu / bare.count)}


def _served_runs(
    name: str, way: str, prepare: Prepare, in_flight: int, target: Target | None = None
) -> Benchmark:
    """Give the benchmark of so many runs in flight."""
    return Benchmark(
        name=f"{name}-{in_flight}",
        title=f"runs with one durable step, {in_flight} in flight, client to result {way}",
        baseline="the library's bare recorder given four events a run in batches of 100",
        prepare=partial(prepare, in_flight),
        counted="runs",
        figures=[
            Figure("p50", "p50 latency, ms"),
            Figure("p99", "p99 latency, ms"),
            Figure("cpu_ratio", "cpu, times the recorder's", target),
        ],
        compare=_cpu_ratio,
    )


_ws_runs: Final = partial(_served_runs, "ws-runs", "on a WebSocket", _over_websocket)
_http_runs: Final = partial(_served_runs, "http-runs", "over HTTP", _over_http)

WS_RUNS: Final = (_ws_runs(100, Target("<=", 40, of="ours")), _ws_runs(20), _ws_runs(1))
HTTP_RUNS: Final = (_http_runs(100), _http_runs(20), _http_runs(1))
