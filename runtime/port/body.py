"""Bodies of requests, with no I/O: bytes in, payload out, and where the body ends.

h11 could do this, but ends trailers at a bare LF, lets a bare CR into chunk extensions (a proxy may
see a line's end in either), and makes an event of each chunk, of which a client may send a million.
These readers take CRLF and nothing else. Extensions and trailers are read, bounded and dropped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from perdure.runtime.port.refusal import PortRefused

if TYPE_CHECKING:
    from perdure.runtime.port.head import Head

_LINE: Final = 256  # bytes of a chunk's line: a size and what few extensions there are
_TRAILERS: Final = 8 << 10
_CRLF: Final = b"\r\n"
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")
_UNSOUND: Final = "the chunks of the body are not as RFC 9112 has them; correct the client"


class LengthBody:
    """A body of a known length."""

    __slots__ = ("remaining",)

    def __init__(self, length: int) -> None:
        """Expect so many bytes."""
        self.remaining = length

    @property
    def done(self) -> bool:
        """Whether all of it came."""
        return not self.remaining

    @property
    def known(self) -> int | None:
        """How many bytes are still to come, if that is known."""
        return self.remaining

    def take(self, data: bytes | bytearray) -> tuple[bytes, bytes]:
        """Split bytes into payload and what comes after the body."""
        payload = bytes(data[: self.remaining])
        rest = bytes(data[self.remaining :])
        self.remaining -= len(payload)
        return payload, rest


class ChunkedBody:
    """A body in chunks."""

    __slots__ = ("_buffer", "_in_chunk", "_trailers", "done")

    def __init__(self) -> None:
        """Expect the line of the first chunk."""
        self.done = False
        self._buffer = bytearray()
        self._in_chunk = 0  # bytes of payload and CRLF that are still to come
        self._trailers: int | None = None  # bytes of trailers so far, once the last chunk came

    @property
    def known(self) -> int | None:
        """Nobody knows how much is to come."""
        return 0 if self.done else None

    def take(self, data: bytes | bytearray) -> tuple[bytes, bytes]:
        """Split bytes into payload and what comes after the body."""
        buffer = self._buffer
        buffer += data
        payload = bytearray()
        at = 0
        while not self.done:
            begun = at
            at = self._payload(buffer, at, payload) if self._in_chunk else self._line(buffer, at)
            if at == begun:
                break
        del buffer[:at]
        rest = b""
        if self.done:
            rest = bytes(buffer)
            buffer.clear()
        return bytes(payload), rest

    def _payload(self, buffer: bytearray, at: int, payload: bytearray) -> int:
        """Take what is there of a chunk, and the line end after it only as a whole."""
        wanted = self._in_chunk - len(_CRLF)
        piece = buffer[at : at + wanted]
        payload += piece
        at += len(piece)
        self._in_chunk -= len(piece)
        if self._in_chunk == len(_CRLF):
            end = buffer[at : at + 2]
            if not _CRLF.startswith(end):
                raise PortRefused("BAD_REQUEST", _UNSOUND)
            if len(end) == len(_CRLF):
                self._in_chunk = 0
                at += 2
        return at

    def _line(self, buffer: bytearray, at: int) -> int:
        """Take a chunk's line or a trailer, if it is complete."""
        trailing = self._trailers is not None
        most = _TRAILERS if trailing else _LINE
        end = buffer.find(_CRLF, at, at + most)
        if end < 0:
            if len(buffer) - at >= most or b"\n" in buffer[at:]:
                raise PortRefused("BAD_REQUEST", _UNSOUND)
            return at
        line = bytes(buffer[at:end])
        if trailing:
            self._trailer(line)
        else:
            self._chunk(line)
        return end + len(_CRLF)

    def _chunk(self, line: bytes) -> None:
        found = _CHUNK.fullmatch(line)
        if found is None:
            raise PortRefused("BAD_REQUEST", _UNSOUND)
        size = int(found[1], 16)
        if size:
            self._in_chunk = size + len(_CRLF)
        else:
            self._trailers = 0

    def _trailer(self, line: bytes) -> None:
        if not line:
            self.done = True
            return
        self._trailers = (self._trailers or 0) + len(line) + len(_CRLF)
        if self._trailers > _TRAILERS or _TRAILER.fullmatch(line) is None:
            raise PortRefused("BAD_REQUEST", _UNSOUND)


Body = LengthBody | ChunkedBody


def body_of(head: Head) -> Body:
    """Give the reader for the body of a request."""
    named = head.named
    if b"transfer-encoding" in named:  # "chunked": h11 knows no other
        return ChunkedBody()
    return LengthBody(int(named.get(b"content-length", 0)))
