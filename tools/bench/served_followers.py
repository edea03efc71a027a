"""Many live followers: what a delivery costs, and a connection that only waits."""

from __future__ import annotations

import resource
import selectors
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tools.bench import loop_server
from tools.bench.benchmark import Benchmark, Figure, Setting, Sides, Target
from tools.bench.measure import Sample
from tools.bench.served_runs import ONE_STEP, keep_in_flight
from tools.bench.server import Served, ServerWatch, served
from tools.bench.socket_client import SocketClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_DELIVERIES: Final = 60_000
_FRAMES: Final = 3  # of a run on channel runs: created, activated, ended
_WARM: Final = 50
_FOLLOW: Final = {"id": 1, "follow": {"channel": "runs"}}
_FILES: Final = 4096
_PATIENCE: Final = 10.0  # seconds
_MICROSECONDS: Final = 1e6


class Crowd:
    """Clients that take what comes and count frames."""

    def __init__(self, clients: Sequence[SocketClient]) -> None:
        """Watch over clients that have connected."""
        self._selector = selectors.DefaultSelector()
        for client in clients:
            self._selector.register(client.socket, selectors.EVENT_READ, client)
        self.frames = 0

    def take(self, number: int) -> None:
        """Wait until all together have got so many frames more."""
        number += self.frames
        while self.frames < number:
            ready = self._selector.select(_PATIENCE)
            if not ready:
                raise RuntimeError(f"{number - self.frames} frames did not come")
            for key, _ in ready:
                self.frames += key.data.take_frames()

    def close(self) -> None:
        """Watch no longer."""
        self._selector.close()


class _Cost(NamedTuple):
    """What was measured beforehand."""

    run: float  # seconds of CPU time, without a follower
    follower: float  # KiB


@contextmanager
def _sides(followers: int, setting: Setting) -> Iterator[Sides]:
    """Open the sides of ws-followers."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, most))
    runs = max(1, setting.size(_DELIVERIES) // _FRAMES // followers)
    with (
        setting.scratch() as directory,
        served(directory) as server,
        served(directory, loop_server.__name__) as looping,
        ExitStack() as stack,
    ):
        creator = stack.enter_context(SocketClient(server.port))
        keep_in_flight(creator, _WARM, 1)
        with ServerWatch(server) as alone:
            keep_in_flight(creator, _WARM, 1)
        before = server.resident
        clients = [stack.enter_context(SocketClient(server.port)) for _ in range(followers)]
        _follow(clients)
        each = (server.resident - before) / followers
        others = [stack.enter_context(SocketClient(looping.port)) for _ in range(followers)]
        caller = stack.enter_context(SocketClient(looping.port))
        yield Sides(
            partial(_ours, server, creator, clients, runs, _Cost(alone.cpu / _WARM, each)),
            partial(_looping, looping, caller, others, runs * _FRAMES),
        )


def _follow(clients: Sequence[SocketClient]) -> None:
    """Follow with all of them until they are live."""
    for client in clients:
        client.send(_FOLLOW)
    for client in clients:
        while "live" not in client.receive():
            pass


def _ours(
    server: Served, creator: SocketClient, clients: Sequence[SocketClient], runs: int, cost: _Cost
) -> Sample:
    """Do runs, one after the other, while all follow."""
    crowd = Crowd(clients)
    with ServerWatch(server) as watch:
        for number in range(runs):
            creator.send({"id": number, "call": "runs.create", "args": ONE_STEP})
            crowd.take(_FRAMES * len(clients))
            creator.receive()
    crowd.close()
    delivery = (watch.cpu - runs * cost.run) / crowd.frames * _MICROSECONDS
    return watch.sample(crowd.frames, {"delivery": delivery, "kib": cost.follower})


def _looping(
    server: Served, caller: SocketClient, clients: Sequence[SocketClient], messages: int
) -> Sample:
    """Have a loop send as many messages to as many clients."""
    crowd = Crowd(clients)
    with ServerWatch(server) as watch:
        for _ in range(messages):
            caller.send(len(clients))
            crowd.take(len(clients))
            caller.receive()
    crowd.close()
    return watch.sample(crowd.frames)


def _cpu_ratio(ours: Sample, looping: Sample) -> dict[str, float]:
    """Compare the CPU time of a delivery."""
    return {"cpu_ratio": (ours.cpu / ours.count) / (looping.cpu / looping.count)}


def _followers(number: int, target: Target | None = None) -> Benchmark:
    """Give the benchmark of so many followers."""
    return Benchmark(
        name=f"ws-followers-{number}",
        title=f"runs, one after the other, shown to {number:,} followers of channel runs",
        baseline="a server that loops over trio-websocket's send_message, to as many",
        prepare=partial(_sides, number),
        counted="deliveries",
        figures=[
            Figure("cpu_ratio", "cpu, times the loop's", target),
            Figure("delivery", "us each, less the runs"),
            Figure("kib", "KiB per idle follower"),
        ],
        compare=_cpu_ratio,
    )


WS_FOLLOWERS: Final = (_followers(100), _followers(1000, Target("<=", 0.25, of="ours")))
