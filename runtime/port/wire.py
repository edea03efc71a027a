"""The wire: the bytes of one connection in both directions, with the time that each may take.

Reading waits only where somebody asked for bytes, so a slow app slows its client and fills no
memory. A write that was cut short leaves the stream in a state that nobody knows: after it the
connection is aborted, never used again.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from perdure.runtime.port.counters import PortCounters
    from perdure.runtime.port.limits import PortLimits

PIECE: Final = 64 << 10
_LINGER_BYTES: Final = 256 << 10  # read and dropped, so that a client can read why it was refused
_BROKEN: Final = (trio.BrokenResourceError, trio.ClosedResourceError)
_ABORT: Final = struct.pack("ii", 1, 0)  # linger for no time: close sends RST


class Disconnected(OSError):
    """The client is gone: what is sent goes nowhere."""


class ByteWire:
    """One connection's stream. ``gone`` is set once nothing can be sent any more."""

    def __init__(self, stream: trio.abc.Stream, limits: PortLimits, counters: PortCounters) -> None:
        """Wrap a stream; a TLS stream has shaken hands already."""
        self.stream = stream
        self.gone = False
        self._writing = False
        self.ended = False  # the client has sent its last byte, and may still read
        self._limits = limits
        self._counters = counters
        self._file = _descriptor(stream)

    async def read(self, size: int = PIECE) -> bytes | bytearray:
        """Give what comes next, b"" after the last byte. A broken connection ``Disconnected``."""
        try:
            data = await self.stream.receive_some(size)
        except _BROKEN as error:
            self.gone = True
            raise Disconnected("the client is gone") from error
        if data:
            self._counters.bytes_in += len(data)
        else:
            self.ended = True
        return data

    async def write(self, data: bytes | memoryview) -> None:
        """Send bytes; wait for as long as the client takes some of them."""
        if self.gone:
            raise Disconnected("the client is gone")
        view = memoryview(data)
        self._writing = True
        try:
            while view:
                piece = view[:PIECE]
                with trio.move_on_after(self._limits.send_time) as scope:
                    await self.stream.send_all(piece)
                if scope.cancelled_caught:
                    self._counters.stalled += 1
                    self.abort()
                    raise Disconnected("the client takes nothing")
                self._counters.bytes_out += len(piece)
                view = view[PIECE:]
        except _BROKEN as error:
            self.gone = True
            raise Disconnected("the client is gone") from error
        except trio.Cancelled:
            self.abort()
            raise
        finally:
            self._writing = False

    async def write_last(self, data: bytes) -> None:
        """Send the end of a response. It seldom has to wait, and then costs no scheduling."""
        if self._file is not None and not self.gone and not self._writing:
            try:
                sent = os.write(self._file.fileno(), data)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self.gone = True
                raise Disconnected("the client is gone") from error
            self._counters.bytes_out += sent
            if sent == len(data):
                return
            await self.write(memoryview(data)[sent:])
            return
        await self.write(data)

    async def linger(self) -> None:
        """Let the client read what was sent before the connection goes away.

        To close with bytes unread sends RST, and a client may then never see the answer.
        """
        if self.gone:
            return
        dropped = 0
        with trio.move_on_after(self._limits.linger):
            try:
                await self._send_eof()
                while not self.ended and dropped < _LINGER_BYTES:
                    dropped += len(await self.read())
            except (*_BROKEN, Disconnected):
                self.gone = True

    async def _send_eof(self) -> None:
        """Say that nothing more comes: with TLS in between as browsers do, by closing below it."""
        stream = self.stream
        if isinstance(stream, trio.SSLStream):
            stream = stream.transport_stream
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()

    def abort(self) -> None:
        """Make sure that nothing more is sent, and that the client sees a broken connection."""
        self.gone = True
        raw = raw_socket(self.stream)
        if raw is not None and raw.fileno() >= 0:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
            raw.close()

    async def close(self) -> None:
        """Close, also when cancelled; goodbyes of TLS get a moment."""
        if self.gone:
            await trio.aclose_forcefully(self.stream)
            return
        with trio.move_on_after(self._limits.linger) as scope:
            scope.shield = True
            try:
                await self.stream.aclose()
            except _BROKEN:
                self.gone = True


def raw_socket(stream: trio.abc.Stream) -> trio.socket.SocketType | None:
    """Give the socket below a stream, if there is one."""
    if isinstance(stream, trio.SSLStream):
        stream = stream.transport_stream
    return stream.socket if isinstance(stream, trio.SocketStream) else None


def _descriptor(stream: trio.abc.Stream) -> trio.socket.SocketType | None:
    """Give the socket to write to directly: without TLS in between."""
    return stream.socket if isinstance(stream, trio.SocketStream) else None
