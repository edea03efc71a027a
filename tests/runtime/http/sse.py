"""A client of server-sent events, after the HTML standard (9.2.6), and streams in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import trio
from starlette.types import ASGIApp

PATIENCE = 1000  # seconds, mostly virtual ones: what does not come is an error and no endless wait


class Event(NamedTuple):
    """An event as a page sees it."""

    kind: str
    data: Any
    last_id: str


class Parser:
    """What a browser makes of the bytes of a stream."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.last_id = ""  # what it would come back with
        self.retry: int | None = None
        self.comments = 0
        self._buffer = b""
        self._id = ""
        self._kind = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[Event]:
        """Take bytes in, and give the events that are complete."""
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        events = [self._line(line.decode()) for line in lines]
        return [event for event in events if event is not None]

    def _line(self, line: str) -> Event | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name:
            self.comments += 1
        elif name == "event":
            self._kind = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isdigit():
            self.retry = int(value)
        return None

    def _dispatch(self) -> Event | None:
        self.last_id = self._id  # before it is looked whether there is anything to show
        kind, data = self._kind or "message", "\n".join(self._data)
        self._kind, self._data = "", []
        return Event(kind, msgspec.json.decode(data), self.last_id) if data else None


class Stream:
    """An answer that is being sent: what came of it so far, and a way to hang up."""

    def __init__(self) -> None:
        """Nothing has come."""
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.parser = Parser()
        self.bytes = 0
        self.over = trio.Event()
        self.events: list[Event] = []
        self.paused = False
        self._news = trio.Event()
        self._gone = trio.Event()

    def hang_up(self) -> None:
        """Go."""
        self._gone.set()

    async def receive(self) -> MutableMapping[str, Any]:
        """Be the client, to the application."""
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Take what the application sends; while paused, nothing."""
        while self.paused:  # noqa: ASYNC110 - a client that looks now and then
            await trio.sleep(0.1)
        if self._gone.is_set():
            raise OSError("the client is gone")
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        else:
            self.bytes += len(message["body"])
            self.events += self.parser.feed(message["body"])
            if not message.get("more_body", False):
                self.over.set()
        self._news.set()
        self._news = trio.Event()
        await trio.lowlevel.checkpoint()

    async def until(self, kind: str, count: int = 1) -> list[Event]:
        """Wait for so many events of a kind."""
        with trio.fail_after(PATIENCE):
            while sum(event.kind == kind for event in self.events) < count:
                assert not self.over.is_set(), self.events
                await self._news.wait()
        return [event for event in self.events if event.kind == kind]


@asynccontextmanager
async def following(
    app: ASGIApp, path: str, last_id: str | None = None, *, method: str = "GET"
) -> AsyncIterator[Stream]:
    """Ask for a stream; leaving the block hangs up."""
    path, _, query = path.partition("?")
    headers = [] if last_id is None else [(b"last-event-id", last_id.encode())]
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": headers,
    }
    stream = Stream()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(app, scope, stream.receive, stream.send)
        yield stream
        stream.hang_up()
