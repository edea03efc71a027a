"""The byte stream under a WebSocket: whole frames out, counted frames in.

Everything that is sent, by us and by the library above, passes here, so frames never mix. A frame
can be sent without waiting if the socket takes it at once; whoever cannot wait, because a thousand
others are to be served, sends that way or not at all. A peer has to take something of what it is
sent, however slowly.

A connection that ends while a frame is on its way ends with a Close nevertheless, wherever there is
a bare socket. Messages are sent in frames of a bounded size, and the system is given little ahead
of what the peer takes. So there is room for the rest of a frame and a Close behind it, also for a
peer that takes nothing: it finds them when it reads again.
"""

from __future__ import annotations

import os
import socket as sockets
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.websocket.frames import (
    FRAGMENT,
    GOING_AWAY,
    TOO_SLOW,
    TRY_AGAIN_LATER,
    BadPeer,
    FrameLimits,
    FrameMeter,
    close_frame,
    end_of_frame,
    fragments,
    is_close,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.eventlog.env import Env
    from perdure.runtime.kernel.budget import Account, Hold

_AHEAD: Final = 128 << 10  # bytes that the system may have before it begins to send them
_ENOUGH: Final = 4 * _AHEAD  # what it has counts twice, and a frame more has to fit
_SMALL: Final = 4 << 10  # what is left of a smaller frame is not worth counting
_COPIES: Final = 2  # of what comes: in the buffer of the library, and in parts of a message
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
        account: Account,
        *,
        trailing: bytes = b"",
        socket: trio.socket.SocketType | None = None,
        limits: WireLimits | None = None,
    ) -> None:
        """Begin with the request and what followed it, which has been read already.

        ``socket`` is the bare one, if bytes can be written to it as they are.
        """
        self.env = env
        self.account = account
        self._stream = stream
        self._head = head
        self._trailing = trailing
        self._socket = socket
        self._limits = limits or WireLimits()
        self._turn = trio.Semaphore(1)  # whoever has it is sending
        self._nursery: trio.Nursery | None = None
        self._meter: FrameMeter | None = None
        self._coming = account.hold()  # messages that came and were not taken
        self._closing = False  # a Close was sent
        self.farewell: Callable[[], bytes | None] = _no_word  # what to say if none was
        self.last_word = close_frame(GOING_AWAY, "the connection ends; come back with your cursors")
        self.heard_at = env.monotonic()
        self.received = 0  # bytes
        self.sent = 0
        if socket is not None:
            with suppress(OSError):  # it is no TCP
                socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NOTSENT_LOWAT, _AHEAD)

    # Receiving

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Give what has come: first the head of the request, then counted frames."""
        if self._head:
            head, self._head = self._head, b""
            await trio.lowlevel.checkpoint()
            return head
        data: bytes | bytearray
        asked_at = self.env.monotonic()
        if self._trailing:
            data, self._trailing = self._trailing, b""
            await trio.lowlevel.checkpoint()
        else:
            data = await self._stream.receive_some(max_bytes)
        now = self.heard_at = self.env.monotonic()
        self.received += len(data)
        delay = self._counted(data, now, now - asked_at)
        if delay:
            await self.env.sleep(delay)
        return data

    def _counted(self, data: bytes | bytearray, now: float, waited: float) -> float:
        """Count what came; a peer that sends what it may not is told why the connection ends."""
        if self._meter is None:
            self._meter = FrameMeter(self._limits.frames, now)
        try:
            delay = self._meter.count(data, now, waited)
            self._coming.resize(_COPIES * self._meter.pending)
        except BadPeer as bad:
            self.last_word = bad.close
            raise
        except OperationError as error:
            reason = f"{error.code}: {error.message}"
            self.last_word = close_frame(TRY_AGAIN_LATER, reason)
            raise BadPeer(TRY_AGAIN_LATER, reason) from error
        return delay

    def message_taken(self) -> None:
        """Count a message no longer: whoever took it counts what has become of it."""
        assert self._meter is not None  # noqa: S101 - it has counted the message
        self._meter.take()
        left = _COPIES * self._meter.pending
        if left < self._coming.size:  # what came last may have been refused
            self._coming.resize(left)

    # Sending

    @property
    def is_sending(self) -> bool:
        """Whether something is on its way, so that a Ping would have to wait."""
        return not self._turn.value

    def send_now(self, frames: bytes) -> bool:
        """Send whole frames if nobody has to wait for that; False: nothing of them was sent.

        If the socket takes only a part, the rest follows by itself before anything else.
        """
        nursery = self._nursery
        if nursery is None or self._closing or not self._turn.value:
            return False
        is_large = len(frames) > _SMALL
        if is_large and self.account.room < len(frames):
            return False
        sent = self._send_at_once(frames)
        if not sent:
            return False
        if sent < len(frames):
            self._turn.acquire_nowait()
            held = self.account.hold(len(frames) - sent if is_large else 0)
            nursery.start_soon(self._send_rest, frames, sent, held)  # many share the frames
        return True

    async def say_last(self, frame: bytes) -> None:
        """Try to say something before the connection is closed."""
        if self._closing:
            return
        self.last_word = frame
        if not self._turn.value:
            return  # half a frame is on its way: whoever sends it says the last word after it
        if self._socket is not None:
            self._part(b"")
        else:
            with (
                trio.move_on_after(_PARTING, shield=True),
                suppress(trio.BrokenResourceError, trio.ClosedResourceError),
            ):
                await self.send_all(frame)

    async def send_message(self, opcode: int, message: bytes) -> None:
        """Send a whole message: at once if that is possible, else when its turn comes."""
        try:
            self._turn.acquire_nowait()
        except trio.WouldBlock:
            await self._turn.acquire()
        try:
            for frame in fragments(opcode, message):
                if self._closing:
                    break
                await self._send(frame)
        finally:
            self._turn.release()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send whole frames when their turn comes. If the peer takes nothing, cut it off.

        Nothing follows a Close: what comes after it is dropped.
        """
        async with self._turn:
            if not self._closing:
                self._closing = is_close(data)
                await self._send(bytes(data))

    def sends_without_waiting(self, nursery: trio.Nursery | None) -> None:
        """Allow ``send_now``: what it cannot finish is finished in the nursery."""
        self._nursery = nursery

    def _send_at_once(self, data: bytes) -> int:
        """Send what the socket takes now; give how much that was."""
        if self._socket is None:
            return 0
        try:
            sent = os.write(self._socket.fileno(), data)
        except OSError:  # it is full, or broken: whoever waits for it finds out
            return 0
        self.sent += sent
        return sent

    async def _send_rest(self, frames: bytes, sent: int, held: Hold) -> None:
        try:
            with held:
                await self._send_on(frames, sent)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the reader finds out too, and ends the connection
        finally:
            self._turn.release()

    async def _send(self, frames: bytes) -> None:
        sent = self._send_at_once(frames)
        if sent < len(frames):
            await self._send_on(frames, sent)

    async def _send_on(self, frames: bytes, sent: int) -> None:
        """Send the rest of whole frames, or end the connection: half a frame spoils what follows.

        A peer that takes too little of it is told so, if it ever reads again.
        """
        view = memoryview(frames)
        try:
            while sent < len(frames):
                end = min(sent + FRAGMENT, len(frames))
                with trio.fail_after(self._limits.send):
                    while sent < end:
                        sent += await self._send_some(view[sent:end])
        except trio.TooSlowError as error:
            self.last_word = close_frame(
                TOO_SLOW, "you take too little of what you are sent; come back with your cursors"
            )
            await self._cut_off(view[sent : end_of_frame(frames, sent)])
            raise trio.BrokenResourceError("the peer does not take what it is sent") from error
        except BaseException:
            await self._cut_off(view[sent : end_of_frame(frames, sent)])
            raise

    async def _send_some(self, piece: memoryview) -> int:
        if self._socket is None:
            await self._stream.send_all(piece)
            sent = len(piece)
        else:
            try:
                sent = await self._socket.send(piece)
            except OSError as error:
                raise trio.BrokenResourceError("the peer is gone") from error
        self.sent += sent
        return sent

    async def _cut_off(self, rest: memoryview) -> None:
        self._part(rest)
        self._socket = None
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(self._stream)

    def _part(self, rest: bytes | memoryview) -> None:
        """Complete the frame that is on its way and say why the connection ends, without waiting.

        The system has kept room for that: it takes more now than it did so far.
        """
        socket = self._socket
        if socket is None or self._closing:
            return
        self._closing = True
        with suppress(OSError):
            socket.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NOTSENT_LOWAT, 0)  # no limit
        with suppress(OSError):
            size = socket.getsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF)
            if size < _ENOUGH:
                socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, size)  # Linux doubles it
        self._send_at_once(bytes(rest) + self.last_word)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the socket takes something."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Close the connection; the library does so without a word where frames are broken."""
        last = None if self._closing else self.farewell()
        if last is not None:
            await self.say_last(last)
        self._socket = None
        self.farewell = _no_word  # it knows the connection, which knows this wire
        await self._stream.aclose()


def _no_word() -> None:
    """Say nothing."""
