"""A WebSocket client that costs as little as possible: it is not what is measured."""

from __future__ import annotations

import socket
from typing import Any, Final, Self

import cbor2

_HANDSHAKE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: perdure.v1+cbor\r\n\r\n"
)
_CHUNK: Final = 1 << 20
_SHORT: Final = 126
_LONG: Final = 127
_HEAD: Final = 4  # bytes, at least of frames that have some length
_CLOSE: Final = 8
_PING: Final = 9
_PONG: Final = bytes((0x8A, 0x80, 0, 0, 0, 0))


class SocketClient:
    """A connection that speaks CBOR, and waits."""

    def __init__(self, port: int) -> None:
        """Connect and shake hands."""
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(_HANDSHAKE)
        self._data = bytearray()
        self._parts: list[bytes] = []  # of a message that comes in fragments
        while b"\r\n\r\n" not in self._data:
            self._data += self._received()
        del self._data[: self._data.index(b"\r\n\r\n") + 4]

    def __enter__(self) -> Self:
        """Use it for the length of a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up."""
        self.socket.close()

    def send(self, *messages: Any) -> None:
        """Send messages, all at once."""
        self.socket.sendall(b"".join([_frame(cbor2.dumps(message)) for message in messages]))

    def receive(self) -> Any:  # noqa: ANN401 - whatever CBOR can hold
        """Wait for a message."""
        return cbor2.loads(self.receive_bytes())

    def receive_bytes(self) -> bytes:
        """Wait for a message, and do not look into it."""
        while True:
            message = self._message()
            if message is not None:
                return message

    def take_messages(self) -> list[bytes]:
        """Take what has come, without waiting for more; give the whole messages in it."""
        self._data += self._received()
        messages = []
        while self._whole():
            message = self._message()
            if message is not None:
                messages.append(message)
        return messages

    def take_frames(self) -> int:
        """Take what has come, without waiting; give the number of whole frames in it."""
        self._data += self._received()
        frames = 0
        while self._whole():
            self._frame()
            frames += 1
        return frames

    def call(self, name: str, **args: Any) -> Any:  # noqa: ANN401 - as above
        """Call an operation and wait for its answer."""
        self.send({"id": 0, "call": name, "args": args})
        return self.receive()

    def _message(self) -> bytes | None:
        """Take a frame; give the message that is whole with it, if there is one."""
        is_last, opcode, payload = self._frame()
        if opcode == _CLOSE:
            raise ConnectionError(f"the server has closed the connection: {payload!r}")
        if opcode == _PING:
            self.socket.sendall(_PONG)  # a client that is silent for long is hung up on
            return None
        if not is_last or self._parts:
            self._parts.append(payload)
            if not is_last:
                return None
            payload = b"".join(self._parts)
            self._parts.clear()
        return payload

    def _frame(self) -> tuple[bool, int, bytes]:
        first, second = self._take(2)
        size = second & 0x7F
        if size == _SHORT:
            size = int.from_bytes(self._take(2), "big")
        elif size == _LONG:
            size = int.from_bytes(self._take(8), "big")
        return bool(first & 0x80), first & 0x0F, self._take(size)

    def _whole(self) -> bool:
        """Tell whether a frame is here; frames of 64 KiB or more are not for counting."""
        data = self._data
        if len(data) < _HEAD:
            return len(data) > 1 and len(data) == 2 + (data[1] & 0x7F)
        size = data[1] & 0x7F
        return len(data) >= (4 + int.from_bytes(data[2:4], "big") if size == _SHORT else 2 + size)

    def _take(self, count: int) -> bytes:
        while len(self._data) < count:
            self._data += self._received()
        taken = bytes(self._data[:count])
        del self._data[:count]
        return taken

    def _received(self) -> bytes:
        data = self.socket.recv(_CHUNK)
        if not data:
            raise ConnectionError("the server has hung up")
        return data


def _frame(payload: bytes) -> bytes:
    """Make a frame with a mask that changes nothing."""
    size = len(payload)
    if size < _SHORT:
        return bytes((0x82, 0x80 | size)) + bytes(4) + payload
    return bytes((0x82, 0x80 | _SHORT)) + size.to_bytes(2, "big") + bytes(4) + payload
