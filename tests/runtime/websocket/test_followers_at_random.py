"""Followers that come, go, stop and stall as chance has it: what each has seen is the log."""

from __future__ import annotations

import json
import random
import socket
from base64 import b64encode
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import pytest
import trio

from perdure.eventlog.filter import Filter
from perdure.eventlog.record import START, Record
from perdure.eventlog.tail import TailLimits
from perdure.runtime.kernel.channels.channel import Channel, Filters, Opening
from perdure.runtime.kernel.completion import completed
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.runs.part import runs_of
from perdure.runtime.websocket import SocketLimits
from perdure.runtime.websocket.wire import WireLimits
from tests.features import TRIED
from tests.runtime.service import Service, service
from tests.runtime.websocket.harness import Client, ConnectionClosed, Server, serving

FORMATS = ("perdure.v1+json", "perdure.v1+cbor")
LOST = (ConnectionClosed, trio.BrokenResourceError, trio.ClosedResourceError)
PATIENCE = 25.0  # seconds that a seed may take
LOAD = 1.0  # seconds in which runs are begun


@dataclass(eq=False)
class Line:
    """What somebody follows, through all connections: a filter, a cursor and what was seen."""

    asked: dict[str, Any]
    cursor: str
    seen: list[Any] = field(default_factory=list)
    ended: bool = False

    def take(self, message: dict[str, Any]) -> None:
        """Take a message in; with each event comes the cursor that covers it."""
        if "events" in message:
            self.seen += message["events"]
            assert message["cursor"] is not None
        self.cursor = message.get("live") or message["cursor"]
        self.ended = self.ended or message.get("end") == "terminal"

    def check(self, records: list[Record]) -> None:
        """Compare what was seen with the log: reports may come with what follows on them."""
        asked = dict(self.asked)
        channel = TRIED.channels[asked.pop("channel")]
        where = passing(channel, channel.filters(**asked))
        told = [shown for r in records if where.matches(r) for shown in channel.show(r)]
        last = {shown.subject: shown for shown in told}
        seen = iter(self.seen)
        event = next(seen, None)
        for shown in told:
            if event is not None and _has(event, json.loads(shown.json)):
                event = next(seen, None)
            else:
                assert shown.is_report, "never seen"
                assert last[shown.subject] is not shown, "the last report was never seen"
        assert event is None, "out of order, twice, or never told"


def passing(channel: Channel, filters: Filters) -> Filter:
    """Give what passes, whatever runs there are."""
    part = mock.Mock()
    part.reader.require = mock.AsyncMock()
    parts = {each.filters: part for each in TRIED.channels.values()}
    opening: Opening = completed(
        channel.open(parts if channel.name == "log" else part, LOCAL, filters)
    )
    return replace(opening.where, names=channel.names)


def _has(seen: Any, told: Any) -> bool:
    """Tell whether an event, however it came, has all that was told, and maybe more."""
    if isinstance(seen, bytes):
        seen = b64encode(seen).decode()
    if isinstance(seen, dict) and isinstance(told, dict):
        return all(name in seen and _has(seen[name], told[name]) for name in told)
    if isinstance(seen, list) and isinstance(told, list):
        return len(seen) == len(told) and all(map(_has, seen, told))
    return bool(seen == told)


@dataclass
class Crowd:
    """Some clients, and all that chance decides."""

    server: Server
    chance: random.Random
    lines: list[Line] = field(default_factory=list)
    over: bool = False

    async def come_and_go(self, lines: list[Line]) -> None:
        """Follow some lines, over one connection after the other."""
        while not self.over:
            with trio.move_on_after(self.chance.choice([0.02, 0.2, 1.0])):
                await self.visit(lines)
            await trio.sleep(self.chance.choice([0, 0.01]))

    async def visit(self, lines: list[Line]) -> None:
        """Connect once; whatever ends it ends it."""
        try:
            async with self.connect() as client:
                await Visit(self, client, lines).run()
        except* LOST:
            pass

    def connect(self) -> Any:
        """Connect over a socket that holds little, or in memory."""
        streams = trio.testing.memory_stream_pair()
        if self.chance.random() < 0.8:
            one, other = socket.socketpair()
            for each in (one, other):
                for way in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    each.setsockopt(socket.SOL_SOCKET, way, self.chance.choice([4096, 65536]))
            streams = tuple(  # type: ignore[assignment]
                trio.SocketStream(trio.socket.from_stdlib_socket(each)) for each in (one, other)
            )
        return self.server.connect(self.chance.choice(FORMATS), streams=streams)


class Visit:
    """One connection: it opens follows, gives credit, stops and opens again."""

    def __init__(self, crowd: Crowd, client: Client, lines: list[Line]) -> None:
        """Follow some lines."""
        self.chance = crowd.chance
        self.client = client
        self.lines = lines
        self.open: dict[int, Line] = {}
        self.next_id = 0

    async def run(self) -> None:
        """Receive, as slowly as chance has it, and do something now and then."""
        for line in self.lines:
            await self.follow(line)
        while self.open:
            message = await self.client.receive()
            line = self.open[message["id"]]
            line.take(message)
            if "end" in message:
                del self.open[message["id"]]
                await self.follow(line)
            elif self.chance.random() < 0.3:
                await self.do_something(message["id"])
            await trio.sleep(self.chance.choice([0, 0, 0, 0.002, 0.03]))

    async def follow(self, line: Line) -> None:
        """Go on where it was."""
        if line.ended:
            return
        self.next_id += 1
        self.open[self.next_id] = line
        ask = {"id": self.next_id, "follow": line.asked, "after": line.cursor}
        credit = self.chance.choice([None, 3, 1000])
        await self.client.send(ask if credit is None else {**ask, "credit": credit})

    async def do_something(self, follow_id: int) -> None:
        """Give credit, or stop: more may still be on its way."""
        if self.chance.random() < 0.6:
            await self.client.send({"id": follow_id, "credit": self.chance.randint(1, 9)})
        else:
            await self.client.send({"id": follow_id, "stop": True})


async def _work(s: Service, chance: random.Random, crowd: Crowd) -> None:
    """Begin runs of several kinds; let the tail lose its place, and clients be sent away."""
    until = trio.current_time() + LOAD
    while trio.current_time() < until:
        kind = chance.choice(["greet", "pour", "pour", "spam", "fail"])
        args = {
            "pour": {"items": chance.randint(1, 60), "size": chance.choice([10, 3000])},
            "spam": {"n": 30},
        }.get(kind, {})
        run_id = (await s.start(kind, args=args, task_id=chance.choice(["a", "b"])))["run_id"]
        if chance.random() < 0.2:
            asked = {"channel": "run", "run_id": run_id}
            crowd.lines.append(Line(asked, s.node.log.cursor(START)))
        if chance.random() < 0.05:
            tail = s.node.log.tail
            tail.skip_to(tail.head)
        if chance.random() < 0.05:
            crowd.server.sockets.drain()
            crowd.server.sockets._draining = False
        await trio.sleep(chance.choice([0, 0.003]))
    crowd.over = True


async def _finish(crowd: Crowd, line: Line) -> None:
    """Read the rest in peace."""
    if line.ended:
        return
    async with crowd.server.connect() as client:
        await client.send({"id": 1, "follow": line.asked, "after": line.cursor})
        while not line.ended:
            message = await client.receive()
            line.take(message)
            if "live" in message and "run_id" not in line.asked:
                return


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))]
)
async def test_what_was_seen_is_the_log(seed: int) -> None:
    """Nothing twice, nothing missing, whatever follows, connections and credit go through (R36)."""
    chance = random.Random(seed)
    limits = SocketLimits(wire=WireLimits(send=0.5))
    async with service() as s, serving(s, limits) as server:
        log = s.node.log
        log.tail._limits = TailLimits(records=chance.choice([16, 8192]))
        crowd = Crowd(server, chance)
        start = log.cursor(START)
        for asked in (
            {"channel": "log"},
            {"channel": "export"},
            {"channel": "runs"},
            {"channel": "runs", "status": ["succeeded", "failed"]},
            {"channel": "export", "task_id": "a"},
        ):
            crowd.lines += [Line(asked, start) for _ in range(3)]
        chance.shuffle(crowd.lines)
        tasks = trio.lowlevel.current_statistics().tasks_living
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                for first in range(0, len(crowd.lines), 3):
                    nursery.start_soon(crowd.come_and_go, crowd.lines[first : first + 3])
                await _work(s, chance, crowd)
            await runs_of(s.node).executor.settled()
            for line in crowd.lines:
                await _finish(crowd, line)
            while server.sockets.connections:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.01)
        records = s.world.store._records
        assert len(records) > 100
        for line in crowd.lines:
            line.check(records)
        assert not server.sockets._groups._groups
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert trio.lowlevel.current_statistics().tasks_living <= tasks
