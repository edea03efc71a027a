"""The port as a whole: who is let in, and how it stops."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from perdure.eventlog.env import RealEnv
from perdure.runtime.port import Port, PortLimits, Upgrade
from perdure.runtime.port.port import peer_of
from tests.runtime.port.world import Echo, MemoryListener, World, body, request, serving, start


async def test_there_is_room_for_so_many_connections() -> None:
    """One more is told so in JSON and closed; when one leaves, there is room again."""
    async with serving(Echo(), limits=PortLimits(connections=2)) as world:
        first, second = await world.connect(), await world.connect()
        assert (await first.get()).status == (await second.get()).status == 200
        third = await world.connect()
        answer = await third.get()
        assert (answer.status, answer.code) == (503, "TOO_MANY_CONNECTIONS")
        assert answer.headers["retry-after"] == "1"
        await third.stream.send_eof()
        assert await third.closed()
        assert world.port.connections == 2
        await first.stream.aclose()
        await wait_all_tasks_blocked(0.01)
        assert (await world.get()).status == 200
    assert world.port.counters.refused == {"TOO_MANY_CONNECTIONS": 1}
    assert world.port.counters.accepted == 3


async def test_one_peer_has_so_many_connections() -> None:
    """Others are not kept out by it."""
    limits = PortLimits(connections_per_peer=2, count_loopback=True)
    async with serving(Echo(), limits=limits) as world:
        mine = [await world.connect() for _ in range(2)]
        assert [(await client.get()).status for client in mine] == [200, 200]
        assert (await world.get()).status == 503
        await mine[0].stream.aclose()
        await wait_all_tasks_blocked(0.01)
        assert (await world.get()).status == 200
    assert not world.port._peers


async def test_a_proxy_on_this_machine_is_not_one_peer() -> None:
    """Everybody comes from there, so loopback counts only in total."""
    async with serving(Echo(), limits=PortLimits(connections_per_peer=2)) as world:
        clients = [await world.connect() for _ in range(5)]
        assert [(await client.get()).status for client in clients] == [200] * 5


def test_a_peer_is_an_address_or_a_network() -> None:
    """Who has one address of IPv6 has 2**64; one of IPv4 may be written as one of IPv6."""
    assert peer_of("192.0.2.1") == peer_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert peer_of("2001:db8:0:1::5") == peer_of("2001:db8:0:1:ffff::") == "2001:db8:0:1::/64"
    assert peer_of("2001:db8:0:2::5") != peer_of("2001:db8:0:1::5")
    assert peer_of("127.0.0.2") == peer_of("::1") == peer_of("::ffff:127.0.0.1") == "loopback"
    assert peer_of("fe80::1%eth0") == "fe80::/64"


async def test_those_turned_away_do_not_pile_up(autojump_clock: MockClock) -> None:
    """A few are told why; the rest is closed without a word."""
    async with serving(Echo(), memory=True, limits=PortLimits(connections=0)) as world:
        clients = [await world.connect() for _ in range(90)]
        said = [await client.rest() for client in clients]
    assert sum(raw.startswith(b"HTTP/1.1 503 ") for raw in said) == 64
    assert said.count(b"") == 26
    assert world.port.connections == 0


def test_a_process_keeps_descriptors_for_other_things(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a flood of connections is refused in words, and the log can open its files."""
    for soft, room in ((1024, 768), (100, 50), (1 << 20, 10_000), (-1, 10_000)):
        monkeypatch.setattr("resource.getrlimit", lambda _, soft=soft: (soft, soft))
        assert Port(Echo(), env=RealEnv())._room == room


class Exhausted(MemoryListener):
    """A listener of a process that has no file descriptor left, twice."""

    left = 2

    async def accept(self) -> trio.abc.HalfCloseableStream:
        """Fail, and then work."""
        if self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, "too many open files")
        return await super().accept()


async def test_a_process_without_descriptors_waits_for_some(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on accepting when there are some again."""
    port = Port(Echo(), env=RealEnv())
    listener = Exhausted()
    async with trio.open_nursery() as nursery:
        await nursery.start(port.serve, [listener])
        assert (await World(port, listener).get()).status == 200
        nursery.cancel_scope.cancel()
    assert len(caplog.records) == 2


async def test_bytes_and_requests_are_counted() -> None:
    """What metrics show is what was sent."""
    async with serving(Echo()) as world:
        client = await world.connect()
        await client.get()
        first = world.port.counters.bytes_out
        await client.get()
    counters = world.port.counters
    assert counters.bytes_in == 2 * len(request())
    assert counters.bytes_out == 2 * first > 0
    assert (counters.accepted, counters.requests) == (1, 2)


# --- drain ---------------------------------------------------------------------------------------


class Slow:
    """An app that answers when it may: begun at once on /begun, not begun on /waiting."""

    def __init__(self) -> None:
        """Nobody may go on."""
        self.go_on = trio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer, with a pause."""
        if scope["path"] == "/begun":
            await send(start())
            await send(body(b"begun ", more=True))
        if scope["path"] != "/":
            await self.go_on.wait()
        if scope["path"] != "/begun":
            await send(start())
        await send(body(b"done"))


async def test_a_drain_finishes_what_is_under_way_and_nothing_else() -> None:
    """Idle connections close at once, responses are completed and say that they are the last."""
    app = Slow()
    port = Port(app, env=RealEnv())
    async with trio.open_nursery() as nursery:
        listener = MemoryListener()
        await nursery.start(port.serve, [listener])
        world = World(port, listener)
        fresh, idle, begun, waiting = [await world.connect() for _ in range(4)]
        assert (await idle.get()).status == 200
        await begun.send(request("/begun"))
        await waiting.send(request("/waiting") + request("/never"))
        await wait_all_tasks_blocked()
        port.drain()
        assert await fresh.closed()
        assert await idle.closed()
        with pytest.raises(trio.BrokenResourceError):
            listener.connect()
        assert port.connections == 2
        app.go_on.set()
        answer = await waiting.response()
        assert (answer.body, answer.headers["connection"]) == (b"done", "close")
        assert await waiting.closed()
        await waiting.stream.aclose()
        assert (await begun.response()).body == b"begun done"
        assert await begun.closed()
        with trio.fail_after(1):
            await port.drained()
        assert port.connections == 0


async def test_a_port_that_was_drained_returns(autojump_clock: MockClock) -> None:
    """`serve` ends when its last connection has."""
    app = Slow()
    port = Port(app, env=RealEnv())
    listener = MemoryListener()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(port.serve, [listener])
            client = await World(port, listener).connect()
            await client.send(request("/begun"))
            await wait_all_tasks_blocked()
            port.drain()
            await trio.sleep(5)
            app.go_on.set()
    assert (await client.response()).body == b"begun done"


async def test_a_request_that_has_begun_to_come_is_served_before_the_end() -> None:
    """Its client cannot know of the drain; it is answered, and told to go."""
    async with serving(Slow(), memory=True) as world:
        client = await world.connect()
        await client.send(request()[:10])
        await wait_all_tasks_blocked()
        world.port.drain()
        await client.send(request()[10:])
        assert (await client.response()).headers["connection"] == "close"
        await world.port.drained()


async def test_a_drain_leaves_upgraded_connections_to_their_handlers() -> None:
    """They have goodbyes of their own."""
    told = trio.Event()

    async def handler(upgrade: Upgrade) -> None:
        await told.wait()
        await upgrade.stream.send_all(b"goodbye")

    async with serving(Slow(), memory=True, upgrade=handler) as world:
        client = await world.connect()
        await client.send(request("/ws", b"connection: upgrade\r\nupgrade: websocket\r\n"))
        await wait_all_tasks_blocked()
        world.port.drain()
        await wait_all_tasks_blocked()
        assert world.port.connections == 1
        told.set()
        assert await client.rest() == b"goodbye"
        await world.port.drained()


async def test_a_port_may_be_drained_before_it_serves() -> None:
    """Then it serves nobody and returns."""
    port = Port(Slow(), env=RealEnv())
    port.drain()
    with trio.fail_after(5):
        await port.serve([MemoryListener()])
        await port.drained()


async def test_a_cancelled_port_closes_everything() -> None:
    """Nothing is left open, whatever it was doing."""
    async with serving(Slow()) as world:
        clients = [await world.connect() for _ in range(3)]
        await clients[1].send(request("/begun"))
        await clients[2].send(request("/waiting"))
        await wait_all_tasks_blocked(0.01)
        assert world.port.connections == 3
    assert world.port.connections == 0
