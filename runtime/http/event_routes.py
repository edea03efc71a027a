"""Channels as server-sent events: what a stream sends is decided in ``runtime.http.event_stream``.

A follower is a request that does not end. It pulls a delivery, sends it, and pulls the next: a
client that reads slowly slows nobody, and holds one delivery. When it goes, its task ends and
nothing else does.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from perdure.runtime.http.event_stream import EVENT_STREAM, EventStream
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.node import OPERATIONS
from perdure.runtime.kernel.principal import principal_of
from perdure.runtime.kernel.routes.arguments import path_args, queried, query_args
from perdure.runtime.kernel.routes.reply import empty_reply
from perdure.runtime.kernel.routes.route import Row
from perdure.runtime.runs.requests import After, Name, Request, RunStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request as HttpRequest
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from perdure.runtime.kernel.channels.subscription import Delivery, Following
    from perdure.runtime.kernel.node import Node
    from perdure.runtime.kernel.routes.route import Handler, Surface

HEARTBEAT: Final = 15.0  # seconds; shorter than the idle time-outs of common proxies
SURFACE: Final = "sse"  # how metrics call these followers
_HEADER: Final = "last-event-id"
_HEADERS: Final = (
    (b"content-type", EVENT_STREAM.encode()),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # or nginx holds events back
    (b"x-content-type-options", b"nosniff"),
)
_OVER: Final = "The run has ended before the place of Last-Event-ID: there is nothing to come."
_log = logging.getLogger("perdure.http")


class FollowEvents(Request):
    """Follow a channel from a cursor on; all that is stated must match."""

    after: After | None = None
    run_id: Name | None = None
    task_id: Name | None = None
    plugin_id: Name | None = None
    entry_id: Name | None = None
    status: list[RunStatus] | None = None


class FollowRun(Request):
    """Follow one run from a cursor on."""

    run_id: Name
    after: After | None = None


class EventReply:
    """The answer to a follower: a stream that lasts until one of the two has had enough."""

    def __init__(self, node: Node, following: Following, first: Delivery | None = None) -> None:
        """Send what is followed; ``first`` was pulled already."""
        self._node = node
        self._following = following
        self._first = first
        self._pulling = trio.CancelScope()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        if scope["method"] == "HEAD":
            await send(_body(b"", more=False))
            return
        followers = self._node.channels.followers
        followers[SURFACE] += 1
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
                nursery.start_soon(self._until_leaving)
                with suppress(OSError):  # the client is gone
                    await self._pump(send)
                nursery.cancel_scope.cancel()
        finally:
            followers[SURFACE] -= 1

    async def _pump(self, send: Send) -> None:
        stream = EventStream()
        await send(_body(stream.begin()))
        while not stream.closed:
            data = await self._next(stream)
            if data:
                await send(_body(data))
        await send(_body(b"", more=False))

    async def _next(self, stream: EventStream) -> bytes:
        """Wait for what is to be sent next; pulls that are given up lose nothing."""
        with trio.CancelScope(deadline=trio.current_time() + HEARTBEAT) as self._pulling:
            if self._node.leaving.is_set():
                return stream.bye()
            try:
                delivery = self._first or await self._following.next_delivery()
            except OperationError as error:
                if error.code == "INTERNAL":
                    _log.exception("a follower cannot go on")
                return stream.bye(error)
            self._first = None
            return stream.deliver(delivery, self._following.cursors(delivery))
        return stream.bye() if self._node.leaving.is_set() else stream.beat()

    async def _until_leaving(self) -> None:
        await self._node.leaving.wait()
        self._pulling.cancel()


async def _until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    """Wait for the client to go: nothing of what it says meanwhile is of interest."""
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()
    scope.cancel()


def _body(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


# Rows


def _following(
    path: str, name: str, channel: str, summary: str, request: type[Request] = FollowEvents
) -> Row:
    asked = OPERATIONS["log.follow"]
    row = Row(
        method="GET",
        path=path,
        name=name,
        summary=summary,
        make=lambda surface: _handler(surface, row, channel),
        tag="events",
        request=request,
        statuses={200: "Events, from the cursor on.", 204: _OVER},
        errors=asked.errors,
        gives=EVENT_STREAM,
        reads={"Last-Event-ID": "a cursor, in the place of `after`; browsers send it themselves"},
        needs=asked.name,
    )
    return row


def _handler(surface: Surface, row: Row, channel: str) -> Handler:
    node = surface.node
    assert row.request is not None  # noqa: S101 - all of these have one
    fields = queried(row.request, row.taken_from("query"))

    async def follow(request: HttpRequest) -> ASGIApp:
        args: dict[str, Any] = {
            **query_args(request.scope["query_string"], fields),
            **path_args(request.path_params),
            "channel": channel,
        }
        comes_back = request.headers.get(_HEADER) or None
        if comes_back is not None:
            args["after"] = comes_back
        following = await node.operations.call(principal_of(request), "log.follow", args)
        if comes_back is None or "run_id" not in args:
            return EventReply(node, following)
        first = await following.next_delivery()
        if first.end and not first.shown:
            return empty_reply(204)
        return EventReply(node, following, first)

    return follow


def _described() -> Iterator[Row]:
    yield _following(
        "/events/runs", "events.runs", "runs", "Follow changes of runs, as server-sent events."
    )
    yield _following(
        "/events/export",
        "events.export",
        "export",
        "Follow what runs put out, as server-sent events.",
    )
    yield _following(
        "/events/log", "events.log", "log", "Follow the log itself, as server-sent events."
    )
    yield _following(
        "/runs/{run_id}/events",
        "events.run",
        "run",
        "Follow one run, its changes and what it puts out, until its end.",
        FollowRun,
    )


ROWS: Final = tuple(_described())
