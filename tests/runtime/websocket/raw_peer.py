"""Peers that send whatever bytes they like."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from tests.runtime.websocket.harness import Server, socket_pair

HANDSHAKE = (
    b"GET %b HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n%b\r\n"
)


def masked(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    """Make a frame as clients send them, with a mask that changes nothing."""
    size = len(payload)
    first = (0x80 if fin else 0) | opcode
    if size < 126:
        head = bytes((first, 0x80 | size))
    elif size < 1 << 16:
        head = bytes((first, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, 0x80 | 127)) + size.to_bytes(8, "big")
    return head + bytes(4) + payload


class Raw:
    """A peer that sends what it likes."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        """Wrap a stream that has been upgraded."""
        self.stream = stream
        self.data = bytearray()
        self._begun: tuple[int, bytes] | None = None  # a message that comes in fragments

    async def frame(self) -> tuple[int, bytes]:
        """Read a message of the server, or a control frame that comes before or within one."""
        while True:
            is_last, opcode, payload = await self._next()
            if opcode >= 8:
                return opcode, payload
            if self._begun is not None:
                assert opcode == 0
                opcode, payload = self._begun[0], self._begun[1] + payload
            self._begun = None if is_last else (opcode, payload)
            if is_last:
                return opcode, payload

    async def _next(self) -> tuple[bool, int, bytes]:
        first, second = await self._take(2)
        size = second & 0x7F
        if size == 126:
            size = int.from_bytes(await self._take(2), "big")
        elif size == 127:
            size = int.from_bytes(await self._take(8), "big")
        return bool(first & 0x80), first & 0x0F, await self._take(size)

    async def close_code(self) -> int:
        """Read up to the end, and give the code that came with it."""
        while True:
            opcode, payload = await self.frame()
            if opcode == 8:
                return int.from_bytes(payload[:2], "big")

    async def ends(self) -> None:
        """Read until there is nothing more."""
        try:
            while await self.stream.receive_some(65536):
                pass
        except trio.BrokenResourceError:
            pass

    async def _take(self, count: int) -> bytes:
        while len(self.data) < count:
            data = await self.stream.receive_some(65536)
            if not data:
                raise EOFError
            self.data += data
        taken = bytes(self.data[:count])
        del self.data[:count]
        return taken


@asynccontextmanager
async def peer(
    server: Server,
    *,
    real: bool = True,
    streams: tuple[trio.abc.Stream, trio.abc.Stream] | None = None,
) -> AsyncIterator[Raw]:
    """Connect a peer that has shaken hands, over a socket, in memory, or over certain streams."""
    memory = trio.testing.memory_stream_pair
    mine, theirs = streams or (socket_pair() if real else memory())
    server.nursery.start_soon(server.accept, theirs)
    await mine.send_all(HANDSHAKE % (b"/ws", b""))
    raw = Raw(mine)
    while b"\r\n\r\n" not in raw.data:
        raw.data += await mine.receive_some(65536)
    head, _, rest = bytes(raw.data).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101")
    raw.data = bytearray(rest)
    try:
        yield raw
    finally:
        await trio.aclose_forcefully(mine)


async def works(server: Server) -> None:
    """Check that the server serves others."""
    async with server.connect() as client:
        assert "ok" in await client.call("runs.list")
