"""What a handler of upgraded connections gets: the request, and the bytes from there on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from runtime.port.refusal import Refusal, error_response
from runtime.port.wire import Wire


class PrefixStream(trio.abc.HalfCloseableStream):
    """A stream that gives some bytes again before those that are still to come."""

    def __init__(self, stream: trio.abc.Stream, prefix: bytes) -> None:
        """Give ``prefix`` first."""
        self.stream = stream
        self._prefix = prefix

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Give what comes next."""
        if not self._prefix:
            return await self.stream.receive_some(max_bytes)
        await trio.lowlevel.checkpoint()
        size = max_bytes or len(self._prefix)
        given, self._prefix = self._prefix[:size], self._prefix[size:]
        return given

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send."""
        await self.stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until there is room."""
        await self.stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """Say that nothing more is sent, where the stream below can."""
        if isinstance(self.stream, trio.abc.HalfCloseableStream):
            await self.stream.send_eof()
        else:
            await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close the stream below."""
        await self.stream.aclose()


@dataclass(slots=True, eq=False, kw_only=True)
class Upgrade:
    """A request to go on as something else. Whoever handles it owns the stream until it returns.

    ``head`` is the request as HTTP/1.1, ``trailing`` what the client sent behind it already.
    """

    path: str
    query: bytes
    headers: Sequence[tuple[bytes, bytes]]
    client: tuple[str, int] | None
    server: tuple[str, int] | None
    scheme: str
    head: bytes
    trailing: bytes
    stream: trio.abc.Stream
    socket: trio.socket.SocketType | None  # to write to without waiting; None under TLS
    _wire: Wire = field(repr=False)
    _date: bytes = field(repr=False)

    def replayed(self) -> PrefixStream:
        """Give a stream on which this request is still to be read: for libraries with a parser."""
        return PrefixStream(self.stream, self.head + self.trailing)

    async def refuse(self, code: str, message: str, *headers: tuple[bytes, bytes]) -> None:
        """Answer with an error of the table; the handler returns afterwards."""
        refusal = Refusal(code, message)
        await self._wire.write(error_response(refusal, *headers, date=self._date))
        await self._wire.linger()
