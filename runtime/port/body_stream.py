"""The body of one request as it comes: bounded in bytes, and ended if it comes too slowly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.port.body import LengthBody, body_of
from perdure.runtime.port.refusal import PortRefused
from perdure.runtime.port.wire import PIECE, Disconnected

if TYPE_CHECKING:
    from perdure.runtime.port.head import Head, HeadBuffer
    from perdure.runtime.port.limits import PortLimits
    from perdure.runtime.port.wire import ByteWire

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CHUNKED_PIECE: Final = 16 << 10  # a body in one-byte chunks is work: not too much of it at once
_DRAIN: Final = 64 << 10  # bytes of a body nobody read that are worth keeping a connection
_UNFINISHED: Final = "the body ends before its end; send all of it"
_SLOW: Final = "the body comes too slowly; send it faster, or again later"


class BodyStream:
    """What is read of a body, part by part, when somebody asks for it."""

    def __init__(self, head: Head, wire: ByteWire, buffer: HeadBuffer, limits: PortLimits) -> None:
        """Take a head; ``buffer`` has what came behind it, and gets what comes behind the body."""
        self.limit = limits.body_bytes
        self._body = body_of(head)
        self._wire = wire
        self._buffer = buffer
        self._limits = limits
        self._size = 0
        self.is_awaited = head.expects_continue and not self._body.done  # before it is sent
        self._patience = limits.body_window
        self._progress = 0

    @property
    def done(self) -> bool:
        """Whether nothing of the body is still to come."""
        return self._body.done

    async def read(self) -> bytes:
        """Give the next part of the body, and nothing only at its end."""
        body = self._body
        if (body.known or 0) + self._size > self.limit:
            raise self._too_large()
        if self.is_awaited:
            self.is_awaited = False
            if not len(self._buffer):  # it waits indeed
                await self._wire.write(_CONTINUE)
        payload = b""
        while not body.done and not payload:
            payload, rest = body.take(self._buffer.take_all() or await self._more())
            if rest:
                self._buffer.add(rest)
            self._size += len(payload)
            if self._size > self.limit:
                raise self._too_large()
        return payload

    async def drain(self) -> bool:
        """Read what is left of the body if it is little; tell whether nothing is left."""
        if self.done:
            return True
        if self.is_awaited or (self._body.known or 0) > _DRAIN:
            return False
        self.limit = self._size + _DRAIN
        with trio.move_on_after(self._limits.linger):
            try:
                while not self.done:
                    await self.read()
            except (Disconnected, PortRefused, OperationError):
                return False
        return self.done

    async def _more(self) -> bytes | bytearray:
        """Read on; a client has to make some progress in the time that it is waited for."""
        size = PIECE if isinstance(self._body, LengthBody) else _CHUNKED_PIECE
        begun = trio.current_time()
        with trio.move_on_after(self._patience) as scope:
            data = await self._wire.read(size)
        if scope.cancelled_caught:
            raise PortRefused("REQUEST_TIMEOUT", _SLOW)
        if not data:
            raise PortRefused("BAD_REQUEST", _UNFINISHED)
        self._patience -= trio.current_time() - begun
        self._progress += len(data)
        if self._progress >= self._limits.body_progress:
            self._patience, self._progress = self._limits.body_window, 0
        return data

    def _too_large(self) -> PortRefused:
        return PortRefused(
            "PAYLOAD_TOO_LARGE",
            f"send at most {self.limit} bytes in one request",
            limit=self.limit,
        )
