"""A port with clients: over real sockets, or in memory where time is virtual."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import h11
import trio
from trio.testing import memory_stream_pair

from perdure.eventlog.env import RealEnv
from perdure.runtime.port import Port, open_listeners

App = Callable[[Any, Any, Any], Awaitable[None]]
HOST = b"host: localhost\r\n"


@dataclass(frozen=True)
class Response:
    """What a client has read."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of an error, whose shape is checked on the way."""
        assert self.headers["content-type"] == "application/json"
        error = json.loads(self.body)["error"]
        assert set(error) == {"code", "message", "details"}
        assert error["message"]
        return str(error["code"])


class Client:
    """One connection, seen from the other side."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        """Begin to talk on a stream."""
        self.stream = stream
        self.protocol = h11.Connection(h11.CLIENT)
        self.informed: list[int] = []  # statuses of 1xx responses

    async def send(self, *parts: bytes) -> None:
        """Send bytes, each part on its own."""
        for part in parts:
            await self.stream.send_all(part)

    async def get(self, path: str = "/", more: bytes = b"", method: str = "GET") -> Response:
        """Ask for something and read the answer."""
        await self.send(request(path, more, method))
        return await self.response(method)

    async def response(self, method: str = "GET") -> Response:
        """Read one response."""
        left, _ = self.protocol.trailing_data
        self.protocol = h11.Connection(h11.CLIENT)
        self.protocol.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        self.protocol.send(h11.EndOfMessage())
        if left:
            self.protocol.receive_data(left)
        body = b""
        head: h11.Response | None = None
        while True:
            event = self.protocol.next_event()
            if event is h11.NEED_DATA:
                self.protocol.receive_data(bytes(await self.stream.receive_some()))
            elif isinstance(event, h11.InformationalResponse):
                self.informed.append(event.status_code)
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                assert isinstance(event, h11.EndOfMessage), event
                break
        assert head is not None
        headers = {name.decode(): value.decode() for name, value in head.headers}
        return Response(head.status_code, headers, body)

    async def rest(self) -> bytes:
        """Read until the connection is closed."""
        left, _ = self.protocol.trailing_data
        return left + b"".join([bytes(data) async for data in self.stream])

    async def reset(self) -> None:
        """Break the connection, as a machine does that has forgotten it."""
        assert isinstance(self.stream, trio.SocketStream)
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.stream.aclose()

    async def closed(self) -> bool:
        """Wait for the end; tell whether nothing came before it."""
        return await self.rest() == b""


def request(path: str = "/", more: bytes = b"", method: str = "GET") -> bytes:
    """The bytes of a request; ``more`` are lines of headers."""
    return f"{method} {path} HTTP/1.1\r\n".encode() + HOST + more + b"\r\n"


def post(body: bytes, path: str = "/", more: bytes = b"") -> bytes:
    """The bytes of a request with a body."""
    return request(path, b"content-length: %d\r\n" % len(body) + more, "POST") + body


class MemoryListener(trio.abc.Listener[trio.abc.HalfCloseableStream]):
    """A listener whose connections are pairs of streams in memory."""

    def __init__(self) -> None:
        """Nobody has connected so far."""
        self._send, self._receive = trio.open_memory_channel[Any](100)  # more than any test opens

    def connect(self) -> trio.abc.HalfCloseableStream:
        """Open a connection; nothing of it is ever held up by its other end."""
        ours, theirs = memory_stream_pair()
        self._send.send_nowait(theirs)
        return ours

    async def accept(self) -> trio.abc.HalfCloseableStream:
        """Wait for a connection."""
        stream: trio.abc.HalfCloseableStream = await self._receive.receive()
        return stream

    async def aclose(self) -> None:
        """Accept nothing more."""
        self._receive.close()
        await trio.lowlevel.checkpoint()


class World:
    """A port that serves, and how to reach it."""

    def __init__(self, port: Port, listener: Any) -> None:
        """Remember both."""
        self.port = port
        self.listener = listener
        self.clients: list[Client] = []
        self.address = ("", 0)
        if not isinstance(listener, MemoryListener):
            self.address = listener.socket.getsockname()[:2]

    async def connect(self) -> Client:
        """Open a connection."""
        if isinstance(self.listener, MemoryListener):
            await trio.lowlevel.checkpoint()
            client = Client(self.listener.connect())
        else:
            client = Client(await trio.open_tcp_stream(*self.address))
        self.clients.append(client)
        return client

    async def get(self, path: str = "/", more: bytes = b"") -> Response:
        """Ask on a connection of its own."""
        client = await self.connect()
        answer = await client.get(path, more)
        await client.stream.aclose()
        return answer


@asynccontextmanager
async def serving(app: App, *, memory: bool = False, **options: Any) -> AsyncIterator[World]:
    """A port at work for the length of a block."""
    port = Port(app, env=RealEnv(), **options)
    listener: Any
    if memory:
        listener = MemoryListener()
    else:
        (listener,) = await open_listeners("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        await nursery.start(port.serve, [listener])
        world = World(port, listener)
        try:
            yield world
        finally:
            for client in world.clients:
                await trio.aclose_forcefully(client.stream)
            nursery.cancel_scope.cancel()


def answering(*messages: dict[str, Any]) -> App:
    """An app that sends these messages and reads nothing."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    return app


def start(status: int = 200, **headers: str) -> dict[str, Any]:
    """The beginning of a response."""
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": pairs}


def body(content: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    """A part of a response."""
    return {"type": "http.response.body", "body": content, "more_body": more}


class Echo:
    """An app that says what it was asked, and remembers it."""

    def __init__(self) -> None:
        """It was asked nothing yet."""
        self.seen: list[tuple[str, str, bytes]] = []
        self.scopes: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Read the whole body and send it back."""
        self.scopes.append(scope)
        content = await read_body(receive)
        if content is None:
            return
        self.seen.append((scope["method"], scope["path"], content))
        await send(start(200, content_length=str(len(content)), path=scope["path"]))
        await send(body(content))


async def read_body(receive: Any) -> bytes | None:
    """All of a body; None if the client left before."""
    content: bytes = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        content += message["body"]
        if not message["more_body"]:
            return content
