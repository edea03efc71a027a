"""Channels as server-sent events: what a stream sends is decided in ``runtime.http.event_stream``.

A follower is a request that does not end. It pulls a delivery, sends it, and pulls the next: a
client that reads slowly slows nobody, and holds one delivery. When it goes, its task ends and
nothing else does. It pulls while it is live too, and stands in no group: ASGI sends only by
waiting, so each follower's task would be woken as it is now, and a batch kept for it meanwhile.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec
import trio

from perdure.eventlog.follow import HEARTBEAT
from perdure.runtime.http.event_stream import EVENT_STREAM, EventStream
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.principal import principal_of
from perdure.runtime.kernel.requests import After, Request
from perdure.runtime.kernel.routes.arguments import path_args, queried, query_args
from perdure.runtime.kernel.routes.reply import empty_reply
from perdure.runtime.kernel.routes.route import Route
from perdure.runtime.kernel.socket_protocol import FOLLOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request as HttpRequest
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from perdure.runtime.kernel.channels import Delivery, Subscription
    from perdure.runtime.kernel.channels.channel import Channel, EventRoute
    from perdure.runtime.kernel.features import Features
    from perdure.runtime.kernel.node import Node
    from perdure.runtime.kernel.operations import Operation
    from perdure.runtime.kernel.routes.route import Handler, Surface

SURFACE: Final = "sse"  # how metrics call these followers
_HEADER: Final = "last-event-id"
_HEADERS: Final = (
    (b"content-type", EVENT_STREAM.encode()),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # or nginx holds events back
    (b"x-content-type-options", b"nosniff"),
)
_OVER: Final = "What is followed has ended before the place of Last-Event-ID: nothing is to come."
_log = logging.getLogger("perdure.http")


class EventReply:
    """The answer to a follower: a stream that lasts until one of the two has had enough."""

    def __init__(
        self, node: Node, subscription: Subscription, first: Delivery | None = None
    ) -> None:
        """Send what is followed; ``first`` was pulled already."""
        self._node = node
        self._subscription = subscription
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
                delivery = self._first or await self._subscription.next_delivery()
            except OperationError as error:
                if error.code == "INTERNAL":
                    _log.exception("a follower cannot go on")
                return stream.bye(error)
            self._first = None
            return stream.deliver(delivery, self._subscription.cursors(delivery))
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


# Routes


def event_routes(features: Features) -> Sequence[Route]:
    """Give the addresses at which channels are followed."""
    follow = features.operations[FOLLOW]
    return [
        _event_route(channel, each, follow)
        for channel in features.channels.values()
        for each in channel.routes
    ]


def _event_route(channel: Channel, where: EventRoute, follow: Operation) -> Route:
    route = Route(
        method="GET",
        path=where.path,
        name=where.name,
        summary=where.summary,
        make=lambda surface: _handler(surface, route, channel.name),
        tag="events",
        request=_request(channel, where),
        statuses={200: "Events, from the cursor on.", 204: _OVER},
        errors=follow.errors,
        gives=EVENT_STREAM,
        reads={"Last-Event-ID": "a cursor, in the place of `after`; browsers send it themselves"},
        needs=follow.name,
        permission=follow.permission,
    )
    return route


def _request(channel: Channel, where: EventRoute) -> type[Request]:
    """Give what can be stated at an address: what its path names, or all filters of its channel."""
    filters = {each.name: each for each in msgspec.structs.fields(channel.filters)}
    named = [name for name in filters if f"{{{name}}}" in where.path]
    stated = [(name, filters[name].type, None) for name in filters if not named]
    required = [(name, _without_none(filters[name].type)) for name in named]
    made: type[Any] = msgspec.defstruct(
        "".join(["Follow", *(word.title() for word in where.name.split("."))]),
        [*required, ("after", After | None, None), *stated],
        bases=(Request,),
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return made


def _without_none(kind: Any) -> Any:  # noqa: ANN401 - a type
    """Give the type of a filter that is always stated."""
    (first,) = [each for each in get_args(kind) if each is not NoneType]
    return first


def _handler(surface: Surface, route: Route, channel: str) -> Handler:
    node = surface.node
    assert route.request is not None  # noqa: S101 - all of these have one
    fields = queried(route.request, route.taken_from("query"))

    async def follow(request: HttpRequest) -> ASGIApp:
        args: dict[str, Any] = {
            **query_args(request.scope["query_string"], fields),
            **path_args(request.path_params),
            "channel": channel,
        }
        comes_back = request.headers.get(_HEADER) or None
        if comes_back is not None:
            args["after"] = comes_back
        subscription = await node.operations.call(principal_of(request), FOLLOW, args)
        if comes_back is None or subscription.selection.ends_with is None:
            return EventReply(node, subscription)
        first = await subscription.next_delivery()
        if first.end and not first.events:
            return empty_reply(204)
        return EventReply(node, subscription, first)

    return follow
