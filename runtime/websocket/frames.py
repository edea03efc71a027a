"""WebSocket frames (RFC 6455, section 5) as bytes: making ours, counting theirs.

A server's frames are not masked, so the same bytes go to everybody. A large message is sent in
fragments: a Close can come between two of them. The library below reads the frames of a client, but
it bounds neither how many fragments a message may have, nor how fast or slowly they may come, nor
how much it keeps of them; ``FrameMeter`` sees the bytes first and does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from struct import pack
from typing import TYPE_CHECKING, Final

from perdure.runtime.kernel.socket_protocol import MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9

GOING_AWAY: Final = 1001
POLICY_VIOLATION: Final = 1008
TOO_BIG: Final = 1009
TRY_AGAIN_LATER: Final = 1013
TOO_SLOW: Final = 4008  # of our own
SILENT: Final = 4009

FRAGMENT: Final = 64 << 10  # bytes of a message that are sent as one frame

_FIN: Final = 0x80
_CONTROL: Final = 0x8  # opcodes from here on
_SHORT: Final = 126  # lengths from here on take two bytes more, or eight
_LONG: Final = 127
_SIXTEEN_BITS: Final = 1 << 16
_MASK_BYTES: Final = 4


def header(opcode: int, size: int, *, fin: bool = True) -> bytes:
    """Begin a frame of so many bytes: a whole message or its last part, or else (not ``fin``)."""
    first = (_FIN if fin else 0) | opcode
    if size < _SHORT:
        return bytes((first, size))
    if size < _SIXTEEN_BITS:
        return pack(">BBH", first, _SHORT, size)
    return pack(">BBQ", first, _LONG, size)


def framed(opcode: int, message: bytes) -> bytes:
    """Make the frames of a whole message."""
    return b"".join(fragments(opcode, message))


def fragments(opcode: int, message: bytes) -> Iterator[bytes]:
    """Make the frames of a whole message one after the other."""
    if len(message) <= FRAGMENT:
        yield header(opcode, len(message)) + message
        return
    view = memoryview(message)
    for start in range(0, len(message), FRAGMENT):
        part = view[start : start + FRAGMENT]
        kind = CONTINUATION if start else opcode
        yield header(kind, len(part), fin=start + FRAGMENT >= len(message)) + part


def end_of_frame(frames: bytes, place: int) -> int:
    """Give where the frame ends that a place in whole frames of ours is in.

    In anything else, the answer to a handshake for example, that is somewhere.
    """
    end = 0
    while end < place and end + 1 < len(frames):
        short = frames[end + 1]
        size = {_SHORT: 2, _LONG: 8}.get(short, 0)
        begin = end + 2 + size
        end = begin + (int.from_bytes(frames[end + 2 : begin], "big") if size else short)
    return end


def close_frame(code: int, reason: str) -> bytes:
    """Say that the connection ends, and why; the reason is cut off at what fits."""
    told = reason.encode()[:123].decode("utf-8", "ignore").encode()
    return header(CLOSE, 2 + len(told)) + pack(">H", code) + told


def is_close(frame: bytes | bytearray | memoryview) -> bool:
    """Tell whether a frame says that the connection ends."""
    return bool(frame) and frame[0] == _FIN | CLOSE


class BadPeer(Exception):
    """A peer sends what no client of ours has reason to; its connection ends with a code."""

    def __init__(self, code: int, reason: str) -> None:
        """Say what was wrong."""
        super().__init__(f"{code}: {reason}")
        self.close = close_frame(code, reason)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLimits:
    """What a client may send."""

    message_bytes: int = MESSAGE_BYTES
    fragments: int = 64  # of one message
    rate: float = 10_000.0  # frames a second; a burst of as many is fine
    patience: float = 10.0  # seconds that a message may be waited for, and more if it moves:
    progress: float = 6 << 10  # bytes a second


class FrameMeter:
    """Counts the frames in what a client sends, before anybody else looks at it.

    Bytes in, seconds to wait out; or ``BadPeer``. ``pending`` are the bytes of messages that came,
    whole or in part, and that nobody has taken.
    """

    def __init__(self, limits: FrameLimits, now: float) -> None:
        """Begin after the handshake."""
        self._limits = limits
        self._head = bytearray()  # of a frame that has not come whole
        self._payload = 0  # bytes of the current frame that are still to come
        self._is_data = self._is_last = False  # what the current frame is
        self._fragments = 0
        self._size = 0
        self._waited = 0.0  # seconds, for the message that is coming
        self._came = 0  # bytes of the message that is coming
        self._whole: deque[int] = deque()  # sizes of messages that came, the oldest first
        self.pending = 0
        self._tokens = limits.rate
        self._told_at = now

    def count(self, data: bytes | bytearray, now: float, waited: float = 0.0) -> float:
        """Take note of bytes that were waited for; give how long to wait before passing them on."""
        place, frames = 0, 0
        self._refuse_a_slow_message(waited)
        while place < len(data):
            if self._payload:
                skipped = min(self._payload, len(data) - place)
                self._payload -= skipped
                place += skipped
                if self._is_data:
                    self._came += skipped
                    self.pending += skipped
            else:
                self._head.append(data[place])
                place += 1
                if len(self._head) < self._wanted():
                    continue
                self._begin(bytes(self._head))
                self._head.clear()
                frames += 1
            if not self._payload and self._is_data and self._is_last:
                self._end_message()
        return self._delay(frames, now)

    def take(self) -> None:
        """Let go of the oldest message."""
        self.pending -= self._whole.popleft()

    def _end_message(self) -> None:
        self._whole.append(self._came)
        self._came = self._fragments = self._size = 0

    def _refuse_a_slow_message(self, waited: float) -> None:
        """Count the time in which it was waited for, and not that in which nobody asked."""
        self._waited = self._waited + waited if self._fragments else 0.0
        if self._waited > self._limits.patience + self._came / self._limits.progress:
            raise BadPeer(POLICY_VIOLATION, "a message comes too slowly; send it at once")

    def _wanted(self) -> int:
        """Give how many bytes the head of this frame has."""
        if len(self._head) < 2:  # noqa: PLR2004 - the length is in the second byte
            return 2
        masked = _MASK_BYTES if self._head[1] & 0x80 else 0
        more = {_SHORT: 2, _LONG: 8}.get(self._head[1] & 0x7F, 0)
        return 2 + more + masked

    def _begin(self, head: bytes) -> None:
        opcode, short = head[0] & 0x0F, head[1] & 0x7F
        if short == _SHORT:
            self._payload = int.from_bytes(head[2:4], "big")
        elif short == _LONG:
            self._payload = int.from_bytes(head[2:10], "big")
        else:
            self._payload = short
        self._is_data, self._is_last = opcode < _CONTROL, bool(head[0] & _FIN)
        if not self._is_data:
            return
        self._fragments += 1
        self._size += self._payload
        limits = self._limits
        if self._size > limits.message_bytes:
            raise BadPeer(TOO_BIG, f"a message may have {limits.message_bytes} bytes")
        if self._fragments > limits.fragments:
            raise BadPeer(POLICY_VIOLATION, f"a message may have {limits.fragments} fragments")

    def _delay(self, frames: int, now: float) -> float:
        rate = self._limits.rate
        self._tokens = min(rate, self._tokens + (now - self._told_at) * rate) - frames
        self._told_at = now
        return max(0.0, -self._tokens / rate)
