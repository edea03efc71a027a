"""A node behind WebSockets, in memory or on a real port, and clients of the library `wsproto`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

from perdure.eventlog import cbor
from perdure.runtime.kernel.budget import Account, Budget
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.port.refusal import PortRefusal, error_response
from perdure.runtime.websocket import SocketLimits, Sockets
from tests.runtime.service import Service


@dataclass(eq=False)
class Upgraded:
    """An upgrade, as the port would hand it over."""

    path: str
    headers: list[tuple[bytes, bytes]]
    head: bytes
    trailing: bytes
    stream: trio.abc.Stream
    account: Account
    socket: trio.socket.SocketType | None = None

    async def refuse(self, code: str, message: str, *headers: tuple[bytes, bytes]) -> None:
        """Answer as the port does."""
        refusal = PortRefusal(code, message)
        await self.stream.send_all(error_response(refusal, *headers, date=b"today"))


async def upgrade_on(stream: trio.abc.Stream, account: Account) -> Upgraded | None:
    """Read the head of a request, if one comes."""
    data = b""
    while b"\r\n\r\n" not in data:
        came = await stream.receive_some(65536)
        if not came:
            return None
        data += came
    head, _, trailing = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    headers = [(k.lower(), v.strip()) for k, _, v in (ln.partition(b":") for ln in lines[1:])]
    path = lines[0].split()[1].decode()
    socket = stream.socket if isinstance(stream, trio.SocketStream) else None
    return Upgraded(path, headers, head + b"\r\n\r\n", trailing, stream, account, socket)


class Client:
    """A client that speaks one of the formats."""

    def __init__(self, connection: WebSocketConnection, format_: str) -> None:
        """Wrap an open connection."""
        self.connection = connection
        self._format = format_
        self._next_id = 1000

    async def send(self, message: Any) -> None:
        """Send a message."""
        data = (
            cbor.encode(message)
            if self._format.endswith("cbor")
            else msgspec.json.encode(message).decode()
        )
        await self.connection.send_message(data)

    async def receive(self) -> Any:
        """Wait for the next message."""
        data = await self.connection.get_message()
        if isinstance(data, bytes):
            return cbor.decode_strict(data)
        return msgspec.json.decode(data)

    async def call(self, name: str, **args: Any) -> Any:
        """Call an operation; nothing else may be under way."""
        self._next_id += 1
        await self.send({"id": self._next_id, "call": name, "args": args})
        answer = await self.receive()
        assert answer["id"] == self._next_id, answer
        return answer

    async def until(self, key: str) -> list[Any]:
        """Give all messages up to the first that has a key."""
        seen = [await self.receive()]
        while key not in seen[-1]:
            seen.append(await self.receive())
        return seen


class Server:
    """A node behind WebSockets."""

    def __init__(
        self, service: Service, nursery: trio.Nursery, sockets: Sockets, budget: Budget
    ) -> None:
        """Wrap what is running."""
        self.budget = budget
        self.service = service
        self.sockets = sockets
        self.nursery = nursery

    async def accept(self, stream: trio.abc.Stream) -> None:
        """Serve one connection, as the port does."""
        try:
            with self.budget.account() as account:
                upgrade = await upgrade_on(stream, account)
                if upgrade is not None:
                    await self.sockets.accept(upgrade)
        except trio.BrokenResourceError:
            pass  # it went before it had asked
        finally:
            await trio.aclose_forcefully(stream)

    @asynccontextmanager
    async def connect(
        self,
        format_: str = "perdure.v1+json",
        *,
        streams: tuple[trio.abc.Stream, trio.abc.Stream] | None = None,
    ) -> AsyncIterator[Client]:
        """Connect a client, by default in memory."""
        mine, theirs = streams or trio.testing.memory_stream_pair()
        self.nursery.start_soon(self.accept, theirs)
        async with trio.open_nursery() as nursery:
            try:
                connection = await wrap_client_stream(
                    nursery,
                    mine,  # type: ignore[arg-type]  # it takes any stream
                    "localhost",
                    "/ws",
                    subprotocols=[format_],
                )
                yield Client(connection, format_)
            finally:  # without a good-bye: this side has the error that the server guards against
                await _closed(mine)  # first: nothing may hide what a test found
                nursery.cancel_scope.cancel()


@asynccontextmanager
async def serving(
    service: Service, limits: SocketLimits | None = None, budget: Budget | None = None
) -> AsyncIterator[Server]:
    """Put WebSockets before a service."""
    sockets = Sockets(service.node, lambda _: LOCAL, limits)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sockets.run)
        yield Server(service, nursery, sockets, budget or Budget())
        nursery.cancel_scope.cancel()


async def _closed(stream: trio.abc.Stream) -> None:
    with trio.CancelScope(shield=True):
        await trio.aclose_forcefully(stream)


def socket_pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    """Give two connected sockets."""
    one, other = trio.socket.socketpair()
    return trio.SocketStream(one), trio.SocketStream(other)


__all__ = ["Client", "ConnectionClosed", "Server", "serving", "socket_pair"]
