"""A server, asked without an event loop: each call blocks until its answer is there.

It is for operations that read: if the connection is lost before an answer, they are asked again.
"""

from __future__ import annotations

import socket
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final

from perdure.runtime.client.conversation import (
    Answered,
    Conversation,
    NotUnderstood,
    Refused,
)
from perdure.runtime.client.unreachable import found, unreachable
from perdure.runtime.client.wire import CONNECTING, PIECE, ConnectionLost, Wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.runtime.client.address import Address, Whereabouts

PATIENCE: Final = 30.0  # seconds to wait for the next bytes of an answer
TRIES: Final = 2  # connections that a call is sent on; a server that is silent gets no second one


class BlockingRemote:
    """A server. Its calls never suspend."""

    at_work: Final = True

    def __init__(self, where: Whereabouts) -> None:
        """Connect only when something is asked."""
        self._where = where
        self._connection: _Connection | None = None

    async def call(self, operation: str, args: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Ask for an operation that reads."""
        lost: Exception | None = None
        for _ in range(TRIES):
            try:
                if self._connection is None:
                    self._connection = _Connection(found(self._where))
                try:
                    return self._connection.ask(operation, args)
                finally:
                    if self._connection.is_lost:  # it may have come with the answer
                        self.close()
            except (OSError, ConnectionLost, NotUnderstood) as error:
                self.close()
                lost = error
                if isinstance(error, TimeoutError):
                    break
        raise unreachable(self._where, lost) from lost

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _Connection:
    """A blocking socket, and the conversation on it."""

    def __init__(self, address: Address) -> None:
        self._wire = Wire(address)
        self._conversation = Conversation()
        self.is_lost = False
        bare = socket.create_connection((address.host, address.port), timeout=CONNECTING)
        self._socket = bare
        try:
            tls = address.tls()
            if tls is not None:
                self._socket = tls.wrap_socket(bare, server_hostname=address.host)
            self._socket.sendall(self._wire.hello())
            while not self._wire.is_open:
                self._receive()
            self._socket.settimeout(PATIENCE)
        except BaseException:
            self._socket.close()
            raise

    def ask(self, operation: str, args: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Send a call, and wait for its answer."""
        _, message = self._conversation.call(operation, args)
        self._socket.sendall(self._wire.message(message))
        while not self.is_lost:
            for each in self._receive():
                told = self._conversation.receive(each)
                if isinstance(told, Answered):
                    return told.answer
                if isinstance(told, Refused):
                    raise told.error
        raise ConnectionLost("the connection was lost before the answer")

    def _receive(self) -> list[bytes]:
        """Give what has come; raise ConnectionLost if that is nothing but the end."""
        messages, reply, lost, _ = self._wire.receive(self._socket.recv(PIECE))
        self.is_lost = lost is not None
        with suppress(OSError) if self.is_lost else nullcontext():  # the server may be gone
            self._socket.sendall(reply)
        if lost is not None and not messages:
            raise lost
        return messages

    def close(self) -> None:
        """Part from the server."""
        self._socket.close()
