"""An HTTP client that costs as little as possible: it is not what is measured."""

from __future__ import annotations

import socket
from typing import Final, Self

_CHUNK: Final = 1 << 20
_LENGTH: Final = b"content-length:"


class HttpClient:
    """A connection that is kept, with one request at a time."""

    def __init__(self, port: int) -> None:
        """Connect."""
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        """Use it for the length of a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up."""
        self.socket.close()

    def send(self, method: str, path: str, body: bytes) -> None:
        """Send a request with a body of JSON."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self.socket.sendall(head.encode() + body)

    def receive(self) -> tuple[int, bytes]:
        """Wait for an answer; give its status and its body."""
        data = self._received()
        while b"\r\n\r\n" not in data:
            data += self._received()
        head, _, body = data.partition(b"\r\n\r\n")
        at = head.lower().index(_LENGTH) + len(_LENGTH)
        size = int(head[at:].split(b"\r\n", 1)[0])
        while len(body) < size:
            body += self._received()
        return int(head.split(b" ", 2)[1]), body

    def _received(self) -> bytes:
        data = self.socket.recv(_CHUNK)
        if not data:
            raise ConnectionError("the server has hung up")
        return data
