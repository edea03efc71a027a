"""WebSocket frames (RFC 6455, section 5) as bytes: making ours, counting theirs.

A server's frames are not masked, so the same bytes go to everybody. The library below reads the
frames of a client, but it bounds neither how many fragments a message may have nor how fast they
may come; ``FrameMeter`` sees the bytes first and does.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import pack
from typing import Final

TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9

POLICY_VIOLATION: Final = 1008
TOO_BIG: Final = 1009

_FIN: Final = 0x80
_CONTROL: Final = 0x8  # opcodes from here on
_SHORT: Final = 126  # lengths from here on take two bytes more, or eight
_LONG: Final = 127
_SIXTEEN_BITS: Final = 1 << 16
_MASK_BYTES: Final = 4


def header(opcode: int, size: int) -> bytes:
    """Begin a frame that is a whole message of so many bytes."""
    first = _FIN | opcode
    if size < _SHORT:
        return bytes((first, size))
    if size < _SIXTEEN_BITS:
        return pack(">BBH", first, _SHORT, size)
    return pack(">BBQ", first, _LONG, size)


def framed(opcode: int, message: bytes) -> bytes:
    """Make the frame of a whole message."""
    return header(opcode, len(message)) + message


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
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLimits:
    """What a client may send."""

    message_bytes: int = 1 << 20
    fragments: int = 64  # of one message
    rate: float = 10_000.0  # frames a second; a burst of as many is fine


class FrameMeter:
    """Counts the frames in what a client sends, before anybody else looks at it.

    Bytes in, seconds to wait out; or ``BadPeer``.
    """

    def __init__(self, limits: FrameLimits, now: float) -> None:
        """Begin after the handshake."""
        self._limits = limits
        self._head = bytearray()  # of a frame that has not come whole
        self._payload = 0  # bytes of the current frame that are still to come
        self._fragments = 0
        self._size = 0
        self._tokens = limits.rate
        self._told_at = now

    def count(self, data: bytes | bytearray, now: float) -> float:
        """Take note of bytes; give how long to wait before passing them on."""
        place, frames = 0, 0
        while place < len(data):
            if self._payload:
                skipped = min(self._payload, len(data) - place)
                self._payload -= skipped
                place += skipped
                continue
            self._head.append(data[place])
            place += 1
            if len(self._head) == self._wanted():
                self._begin(bytes(self._head))
                self._head.clear()
                frames += 1
        return self._delay(frames, now)

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
        if opcode >= _CONTROL:
            return
        self._fragments += 1
        self._size += self._payload
        limits = self._limits
        if self._size > limits.message_bytes:
            raise BadPeer(TOO_BIG, f"a message may have {limits.message_bytes} bytes")
        if self._fragments > limits.fragments:
            raise BadPeer(POLICY_VIOLATION, f"a message may have {limits.fragments} fragments")
        if head[0] & _FIN:
            self._fragments = self._size = 0

    def _delay(self, frames: int, now: float) -> float:
        rate = self._limits.rate
        self._tokens = min(rate, self._tokens + (now - self._told_at) * rate) - frames
        self._told_at = now
        return max(0.0, -self._tokens / rate)
