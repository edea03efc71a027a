"""The byte stream under a WebSocket: whole frames out, counted frames in.

Everything that is sent, by us and by the library above, passes here, so frames never mix. A frame
can be sent without waiting if the socket takes it at once; whoever cannot wait, because a thousand
others are to be served, sends that way or not at all. A peer has to take something of what it is
sent, however slowly. A send that is given up leaves half a frame on the way: nothing can follow it,
so the connection is cut off.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from perdure.runtime.websocket.frames import FrameLimits, FrameMeter, framed, is_close

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.eventlog.env import Env


PIECE: Final = 64 << 10
_PARTING: Final = 1.0  # seconds in which a last frame may be sent


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """How long a peer may take to accept what it is sent, and what it may send."""

    send: float = 10.0  # seconds, for a piece of 64 KiB
    frames: FrameLimits = field(default_factory=FrameLimits)


class FrameWire(trio.abc.Stream):
    """A connection after its upgrade."""

    def __init__(
        self,
        env: Env,
        stream: trio.abc.Stream,
        head: bytes,
        *,
        trailing: bytes = b"",
        socket: trio.socket.SocketType | None = None,
        limits: WireLimits | None = None,
    ) -> None:
        """Begin with the request and what followed it, which has been read already.

        ``socket`` is the bare one, if bytes can be written to it as they are.
        """
        self._env = env
        self._stream = stream
        self._head = head
        self._trailing = trailing
        self._socket = socket
        self._limits = limits or WireLimits()
        self._turn = trio.Semaphore(1)  # whoever has it is sending
        self._nursery: trio.Nursery | None = None
        self._meter: FrameMeter | None = None
        self._closing = False  # a Close was sent
        self.farewell: Callable[[], bytes | None] = lambda: None  # what to say if none was
        self.heard_at = env.monotonic()
        self.received = 0  # bytes
        self.sent = 0

    # Receiving

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Give what has come: first the head of the request, then counted frames."""
        if self._head:
            head, self._head = self._head, b""
            await trio.lowlevel.checkpoint()
            return head
        data: bytes | bytearray
        if self._trailing:
            data, self._trailing = self._trailing, b""
            await trio.lowlevel.checkpoint()
        else:
            data = await self._stream.receive_some(max_bytes)
        now = self.heard_at = self._env.monotonic()
        self.received += len(data)
        if self._meter is None:
            self._meter = FrameMeter(self._limits.frames, now)
        delay = self._meter.count(data, now)
        if delay:
            await self._env.sleep(delay)
        return data

    # Sending

    def send_now(self, frame: bytes) -> bool:
        """Send a frame if nobody has to wait for that; False: nothing of it was sent.

        If the socket takes only a part, the rest follows by itself before anything else.
        """
        nursery, socket = self._nursery, self._socket
        if nursery is None or socket is None or self._closing or not self._turn.value:
            return False
        try:
            sent = os.write(socket.fileno(), frame)
        except OSError:  # it is full, or broken: whoever waits for it finds out
            return False
        self.sent += sent
        if sent < len(frame):
            self._turn.acquire_nowait()
            nursery.start_soon(self._send_rest, memoryview(frame)[sent:])  # many share the frame
        return True

    async def say_last(self, frame: bytes) -> None:
        """Try to say something before the connection is closed, unless half a frame is there."""
        if not self._turn.value:
            return
        with (
            trio.move_on_after(_PARTING, shield=True),
            suppress(trio.BrokenResourceError, trio.ClosedResourceError),
        ):
            await self.send_all(frame)

    async def send_message(self, opcode: int, message: bytes) -> None:
        """Send a whole message: at once if that is possible, else when its turn comes."""
        frame = framed(opcode, message)
        if not self.send_now(frame):
            await self.send_all(frame)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send something when its turn comes. If the peer takes nothing, cut it off.

        Nothing follows a Close: what comes after it is dropped.
        """
        async with self._turn:
            if not self._closing:
                self._closing = is_close(data)
                await self._send(data)

    def sends_without_waiting(self, nursery: trio.Nursery | None) -> None:
        """Allow ``send_now``: what it cannot finish is finished in the nursery."""
        self._nursery = nursery

    async def _send_rest(self, rest: memoryview) -> None:
        try:
            await self._send(rest)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the reader finds out too, and ends the connection
        finally:
            self._turn.release()

    async def _send(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it, or cut the connection off: half a frame would spoil what follows."""
        rest = memoryview(data)
        try:
            while rest:
                with trio.fail_after(self._limits.send):
                    await self._stream.send_all(rest[:PIECE])
                self.sent += len(rest[:PIECE])
                rest = rest[PIECE:]
        except trio.TooSlowError as error:
            await self._cut_off()
            raise trio.BrokenResourceError("the peer does not take what it is sent") from error
        except BaseException:
            await self._cut_off()
            raise

    async def _cut_off(self) -> None:
        self._socket = None
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(self._stream)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the socket takes something."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Close the connection; the library does so without a word where frames are broken."""
        last = None if self._closing else self.farewell()
        if last is not None:
            await self.say_last(last)
        self._socket = None
        await self._stream.aclose()
