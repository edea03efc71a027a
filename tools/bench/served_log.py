"""Channel ``log`` at a client: the lag of what is new, and the replay of what is old."""

from __future__ import annotations

import select
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import cbor2

from tools.bench.benchmark import Benchmark, Figure, Setting, Sides, Target
from tools.bench.eventlog_append import append_alone
from tools.bench.eventlog_replay import read_notifications
from tools.bench.large_log import large_log, twin
from tools.bench.measure import Sample, latencies
from tools.bench.served_runs import ONE_STEP, keep_in_flight
from tools.bench.server import Served, ServerWatch, served
from tools.bench.socket_client import SocketClient
from tools.bench.workload import new_events

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLLOW: Final = {"id": 1, "follow": {"channel": "log"}}
_RUNS_PER_SECOND: Final = 25
_EVENTS: Final = 4  # of a run
_SECONDS: Final = 5
_LONE: Final = 500
_WARM: Final = 50
_NANOSECONDS: Final = 1e9
_EVENTS_AT: Final = 11  # in a frame of a follow with a small number: where its events begin
_TWO_BYTES: Final = 0x99


# Live lag


@contextmanager
def _live(setting: Setting) -> Iterator[Sides]:
    """Open the sides of ws-lag."""
    runs = _RUNS_PER_SECOND * setting.size(_SECONDS)
    events = new_events(setting.size(_LONE, 100))
    with (
        setting.scratch() as directory,
        served(directory) as server,
        SocketClient(server.port) as creator,
        SocketClient(server.port) as follower,
    ):
        keep_in_flight(creator, _WARM, 1)
        follower.send(_FOLLOW)
        while "live" not in follower.receive():
            pass
        yield Sides(
            partial(_lag, server, creator, follower, runs), partial(append_alone, setting, events)
        )


def _lag(server: Served, creator: SocketClient, follower: SocketClient, runs: int) -> Sample:
    """Create runs at a steady pace; take the time from each event to its arrival."""
    taken: list[float] = []
    created = ended = 0
    with ServerWatch(server) as watch:
        start = time.perf_counter()
        while ended < runs or len(taken) < runs * _EVENTS:
            due = start + created / _RUNS_PER_SECOND
            patience = max(0.0, due - time.perf_counter()) if created < runs else None
            ready, _, _ = select.select([creator.socket, follower.socket], [], [], patience)
            if follower.socket in ready:
                for message in follower.take_messages():
                    taken += _lags_of(message)
            if creator.socket in ready:
                ended += len(creator.take_messages())
            if created < runs and time.perf_counter() >= due:
                creator.send({"id": created, "call": "runs.create", "args": ONE_STEP})
                created += 1
    return watch.sample(len(taken), latencies(taken))


def _lags_of(message: bytes) -> list[float]:
    """Give the seconds from the time of each event until now."""
    now = time.time_ns()
    return [(now - event["event_time"]) / _NANOSECONDS for event in cbor2.loads(message)["events"]]


def _within_reach(ours: Sample, append: Sample) -> dict[str, float]:
    """Tell how the lag stands to two lone appends and two milliseconds."""
    return {"reach": ours.figures["p50"] / (2 * append.figures["p50"] + 2)}


# Replay


@contextmanager
def _replayed(setting: Setting) -> Iterator[Sides]:
    """Open the sides of ws-replay."""
    with setting.scratch() as directory:
        (directory / "log.db").symlink_to(large_log(setting))
        with served(directory) as server:
            with SocketClient(server.port) as client:
                client.call("runs.list")  # it has read the log for its own ends
            yield Sides(partial(_replay, server), partial(read_notifications, twin(setting)))


def _replay(server: Served) -> Sample:
    """Follow from the start until live, and only count."""
    events = size = 0
    with SocketClient(server.port) as client, ServerWatch(server) as watch:
        client.send(_FOLLOW)
        while True:
            message = client.receive_bytes()
            if not message.startswith(b"events", 6):
                break
            events += _events_in(message)
            size += len(message)
    if "live" not in cbor2.loads(message):
        raise RuntimeError(f"the replay has ended with {cbor2.loads(message)}")
    return watch.sample(events, {"size": size / events})


def _events_in(message: bytes) -> int:
    """Give the number of events in a frame from the head of their array."""
    head = message[_EVENTS_AT + 1]
    if head == _TWO_BYTES:
        return int.from_bytes(message[_EVENTS_AT + 2 : _EVENTS_AT + 4], "big")
    return head & 0x1F


def _cpu_rate(ours: Sample, bare: Sample) -> dict[str, Any]:
    """Compare records for each second of CPU time."""
    return {"cpu_rate": (ours.count / ours.cpu) / (bare.count / bare.cpu)}


WS_LAG: Final = Benchmark(
    name="ws-lag",
    title="100 events a second: from the time of an event to a client of channel log",
    baseline="a lone appender, one event after the other",
    prepare=_live,
    figures=[
        Figure("p50", "p50 latency, ms"),
        Figure("p99", "p99 latency, ms"),
        Figure("reach", "p50 over 2 lone p50 + 2 ms", Target("<=", 1, of="ours")),
    ],
    compare=_within_reach,
    rounds=3,
)
WS_REPLAY: Final = Benchmark(
    name="ws-replay",
    title="channel log from its start to one CBOR client that only counts",
    baseline="select_notifications of the bare recorder, the same bodies in pages of 1000",
    prepare=_replayed,
    counted="records",
    rate=Target(">=", 0.4),
    figures=[
        Figure("size", "bytes a record"),
        Figure("cpu_rate", "records/cpu s, of baseline"),
    ],
    compare=_cpu_rate,
)
