"""A client's WebSocket without I/O: bytes in, messages out, and the bytes to send back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    RejectConnection,
    RejectData,
    Request,
)
from wsproto.utilities import ProtocolError

from perdure.runtime.client.conversation import error_of
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.socket_protocol import CBOR

if TYPE_CHECKING:
    from wsproto.events import Event

    from perdure.runtime.client.address import Address

MOST: Final = 64 << 20  # bytes of a message from the server, and of a refusal
_SERVER_ERROR: Final = 500  # a proxy before a server that restarts answers so
PIECE: Final = 64 << 10  # bytes that are read at a time
CONNECTING: Final = 10.0  # seconds until a server has to have accepted a connection


class ConnectionLost(Exception):
    """Nothing more will come on this connection."""


class Received(NamedTuple):
    """What came with some bytes: whole messages, then maybe the end of the connection.

    ``reply`` is to be sent back in any case; ``is_alive`` says that the server asked for a pong.
    """

    messages: list[bytes]
    reply: bytes
    lost: ConnectionLost | None
    is_alive: bool = False


class Wire:
    """One connection: its handshake, then whole messages."""

    def __init__(self, address: Address) -> None:
        """Nothing is sent before ``hello``."""
        self._address = address
        self._socket = WSConnection(ConnectionType.CLIENT)
        self._refusal = bytearray()
        self._status = 0
        self._pieces = bytearray()
        self._closed: ConnectionLost | None = None
        self.is_open = False

    def hello(self) -> bytes:
        """Begin the handshake."""
        host, target = self._address.authority, self._address.target
        return self._socket.send(Request(host=host, target=target, subprotocols=[CBOR]))

    def message(self, data: bytes) -> bytes:
        """Frame a message, or raise ConnectionLost if the connection is closing."""
        try:
            return self._socket.send(BytesMessage(data=data))
        except ProtocolError as error:
            raise self._closed or ConnectionLost(f"nothing can be sent: {error}") from error

    def receive(self, data: bytes | bytearray) -> Received:
        """Take bytes, none at the end; give what came with them.

        Raise OperationError if the handshake is refused.
        """
        messages: list[bytes] = []
        reply, is_alive = b"", False
        try:
            self._socket.receive_data(bytes(data) or None)
            for event in self._socket.events():
                if isinstance(event, Ping):
                    is_alive = True
                    reply += self._socket.send(event.response())
                else:
                    self._take(event, messages)
                    reply += self._farewell(event)
        except ProtocolError as error:
            if data and not self.is_open and not self._status:
                raise self._no_perdure(f"no HTTP is spoken; is it https://? {error}") from error
            self._closed = self._closed or ConnectionLost(f"this is no WebSocket: {error}")
        except ConnectionLost as error:
            self._closed = self._closed or error
        return Received(messages, reply, self._closed, is_alive)

    def _farewell(self, event: Event) -> bytes:
        """Answer a Close: until then the server waits. An end without one has no answer."""
        is_asked = self._socket.state is ConnectionState.REMOTE_CLOSING
        if is_asked and isinstance(event, CloseConnection):
            return self._socket.send(event.response())
        return b""

    def _take(self, event: Event, messages: list[bytes]) -> None:
        match event:
            case AcceptConnection():
                self.is_open = True
            case Message(data=data, message_finished=is_whole):
                self._pieces += data if isinstance(data, bytes | bytearray) else data.encode()
                if len(self._pieces) > MOST:
                    raise ConnectionLost(f"a message has more than {MOST} bytes")
                if is_whole:
                    messages.append(bytes(self._pieces))
                    self._pieces.clear()
            case RejectConnection(status_code=status, has_body=has_body):
                self._status = status
                if not has_body:
                    raise self._refused()
            case RejectData(data=data, body_finished=is_whole):
                self._refusal += data
                if is_whole or len(self._refusal) > MOST:
                    raise self._refused()
            case CloseConnection(code=code, reason=reason):
                told = f"the server closed the connection: {code} {reason or ''}"
                self._closed = self._closed or ConnectionLost(told.rstrip())
            case _:
                pass  # a Pong

    def _refused(self) -> OperationError:
        try:
            told = error_of(msgspec.json.decode(self._refusal)["error"])
        except (msgspec.DecodeError, ValueError, KeyError, TypeError, AttributeError):
            told = None
        if told is not None and told.code != "NOT_FOUND":  # that says what other paths there are
            return told
        return self._no_perdure(f"HTTP {self._status}")

    def _no_perdure(self, why: str) -> OperationError:
        code = "NOT_FOUND" if self._status < _SERVER_ERROR else "UNAVAILABLE"
        message = f"there is no Perdure at {self._address.url} ({why})"
        return OperationError(code, message)
