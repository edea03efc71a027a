"""Whatever bytes come, the port answers as it should or closes, and goes on."""

from __future__ import annotations

import re

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from perdure.eventlog.env import RealEnv
from perdure.runtime.port import Port, PortLimits, Upgrade
from tests.fuzz import examples
from tests.runtime.port.world import Echo, MemoryListener, World

LINES = [
    b"GET / HTTP/1.1\r\n",
    b"POST /a%20b?c HTTP/1.1\r\n",
    b"HEAD http://localhost/ HTTP/1.1\r\n",
    b"OPTIONS * HTTP/1.1\r\n",
    b"CONNECT a:1 HTTP/1.1\r\n",
    b"GET /%ff HTTP/1.0\r\n",
]
FIELDS = [
    b"host: localhost\r\n",
    b"Host: [::1]:80\r\n",
    b"host: evil\r\n",
    b"content-length: 5\r\n",
    b"content-length: 99999999999\r\n",
    b"content-length: -1\r\n",
    b"transfer-encoding: chunked\r\n",
    b"transfer-encoding: gzip\r\n",
    b"expect: 100-continue\r\n",
    b"connection: close\r\n",
    b"connection: upgrade\r\nupgrade: websocket\r\n",
    b"origin: http://localhost\r\n",
    b"origin: null\r\n",
    b"a: b\r\n",
]
PARTS = [
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b":",
    b"\0",
    b"\xff",
    b"5\r\nhello\r\n",
    b"0\r\n",
    b"0\r\n\r\n",
    b"5;x=y\r\n",
    b"ffffffffffffffff\r\n",
    b"hello",
    b"x" * 300,
]
NOISE = st.lists(
    st.sampled_from([*LINES, *FIELDS, *PARTS]) | st.binary(max_size=12), max_size=8
).map(b"".join)
# Mostly sound: what is wrong about it lies deeper.
REQUESTS = st.tuples(
    st.sampled_from(LINES),
    st.just(b"host: localhost\r\n"),
    st.lists(st.sampled_from(FIELDS[3:]), max_size=3).map(b"".join),
    st.just(b"\r\n"),
    st.lists(st.sampled_from(PARTS), max_size=4).map(b"".join),
).map(b"".join)
CONVERSATIONS = st.lists(NOISE | REQUESTS, max_size=5)
STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")
BATCH = 20  # conversations on one port: starting an event loop costs more than a request


async def shout(upgrade: Upgrade) -> None:
    """An upgrade that ends at once."""
    await upgrade.stream.send_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")


async def converse(world: World, parts: list[bytes]) -> bytes:
    """Send parts, then close this side and read everything."""
    client = await world.connect()
    try:
        for part in parts:
            await client.send(part)
            await trio.lowlevel.checkpoint()
        await client.stream.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    with trio.fail_after(60):
        return await client.rest()


def fuzz(conversations: list[list[bytes]]) -> None:
    """Talk to a port; in the end it still serves and has lost nothing."""

    async def main() -> None:
        limits = PortLimits(head_bytes=400, body_bytes=1000)
        port = Port(Echo(), upgrade=shout, limits=limits, env=RealEnv())
        listener = MemoryListener()
        world = World(port, listener)
        async with trio.open_nursery() as nursery:
            await nursery.start(port.serve, [listener])
            for parts in conversations:
                raw = await converse(world, parts)
                statuses = [int(status) for status in STATUS.findall(raw)]
                assert all(status < 500 for status in statuses), raw
                assert not raw or statuses, raw
                assert bool(raw) == any(part for part in parts)
            assert (await world.get()).status == 200
            await trio.sleep(100)
            assert port.connections == 0
            assert port.counters.crashes == 0
            assert len(nursery.child_tasks) == 1
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


BATCHES = st.lists(CONVERSATIONS, min_size=BATCH, max_size=BATCH)


@examples(batch=BATCH)
@given(BATCHES)
def test_no_bytes_harm_the_port(conversations: list[list[bytes]]) -> None:
    """No 5xx, no silence, no dead task, no connection that stays."""
    fuzz(conversations)
