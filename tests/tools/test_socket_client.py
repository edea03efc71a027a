from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import cbor2
import pytest

from tools.bench.served_log import _lag
from tools.bench.server import Served
from tools.bench.socket_client import SocketClient

UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"


def frame(payload: bytes, opcode: int = 2) -> bytes:
    """A small frame of a server."""
    return bytes((0x80 | opcode, len(payload))) + payload


class Peer:
    """A client, and the other end of its connection."""

    def __init__(self, listener: socket.socket) -> None:
        """Connect them."""
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        self.client = SocketClient(listener.getsockname()[1])

    def _accept(self, listener: socket.socket) -> None:
        self.end, _ = listener.accept()
        asked = b""
        while not asked.endswith(b"\r\n\r\n"):
            asked += self.end.recv(1000)
        self.end.sendall(UPGRADED)

    def close(self) -> None:
        """Close both ends."""
        self.client.socket.close()
        self.end.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Something that listens on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def peer(listener: socket.socket) -> Iterator[Peer]:
    """A connection."""
    connected = Peer(listener)
    yield connected
    connected.close()


class IdleServer(Served):
    """A server that costs nothing."""

    def __init__(self) -> None:
        """There is no process."""

    @property
    def cpu(self) -> float:
        """It does nothing."""
        return 0.0


def test_answers_that_come_together_are_all_taken(listener: socket.socket) -> None:
    """The measurement of lag does not wait for what it has already received."""
    creator, follower = Peer(listener), Peer(listener)
    event: dict[str, Any] = {"event_time": time.time_ns()}
    creator.end.sendall(frame(b"one") + frame(b"two"))
    follower.end.sendall(frame(cbor2.dumps({"events": [event] * 4})) * 2)
    found: list[int] = []
    measuring = threading.Thread(
        target=lambda: found.append(
            _lag(IdleServer(), creator.client, follower.client, runs=2).count
        ),
        daemon=True,
    )
    measuring.start()
    measuring.join(5)
    assert found == [8]
    creator.close()
    follower.close()


def test_a_part_of_a_message_is_kept_for_later(peer: Peer) -> None:
    """Only whole messages are given."""
    whole = frame(b"one") + frame(b"two")
    peer.end.sendall(whole[:7])
    assert peer.client.take_messages() == [b"one"]
    peer.end.sendall(whole[7:])
    assert peer.client.take_messages() == [b"two"]


def test_a_ping_is_answered_and_is_no_message(peer: Peer) -> None:
    """A client that is silent for long is hung up on."""
    peer.end.sendall(frame(b"", 9) + frame(b"one"))
    assert peer.client.take_messages() == [b"one"]
    assert peer.end.recv(100) == bytes((0x8A, 0x80, 0, 0, 0, 0))
    peer.end.sendall(frame(b"", 9) + frame(b"two"))
    assert peer.client.receive_bytes() == b"two"


def test_a_close_is_told_with_its_reason(peer: Peer) -> None:
    """It is not taken for a message."""
    peer.end.sendall(frame(b"\x03\xf0why", 8))
    with pytest.raises(ConnectionError, match="why"):
        peer.client.receive_bytes()
    peer.end.sendall(frame(b"\x03\xf0why", 8))
    with pytest.raises(ConnectionError, match="why"):
        peer.client.take_messages()


def test_a_message_in_fragments_is_one_message(peer: Peer) -> None:
    """Also with a ping between two of them, and however it is asked for."""
    parts = b"\x02\x03one" + frame(b"", 9) + b"\x00\x03two" + frame(b"three", 0)
    peer.end.sendall(parts + frame(b"four"))
    assert peer.client.receive_bytes() == b"onetwothree"
    assert peer.client.receive_bytes() == b"four"
    peer.end.sendall(parts + frame(b"four"))
    assert peer.client.take_messages() == [b"onetwothree", b"four"]
