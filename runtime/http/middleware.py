"""The middleware: what every request passes.

It turns whatever goes wrong into an error of the one table, answers the preflights of web pages
that may ask, and leaves the body out where only the head was asked for. It stands in the place of
Starlette's own stack of middleware.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from perdure.runtime.kernel.errors import OperationError, translated
from perdure.runtime.kernel.routes.reply import Header, Reply, empty_reply, error_reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Mapping, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_EXPOSED: Final = b"location, etag, content-range, accept-ranges, content-disposition, retry-after"
_MAY_SEND: Final = b"content-type, range, if-range, if-none-match, last-event-id, authorization"
_METHODS: Final = b"GET, HEAD, POST, PUT, OPTIONS"
_PREFLIGHT_AGE: Final = b"600"  # seconds
_NOT_FOUND: Final = 404
_NOT_ALLOWED: Final = 405
_log = logging.getLogger("perdure.http")


class Middleware:
    """An ASGI application around another."""

    def __init__(
        self,
        inside: ASGIApp,
        origins: Collection[str] = (),
        upgrades: Mapping[str, Sequence[Header]] | None = None,
    ) -> None:
        """Let the pages of some origins ask, besides our own.

        ``upgrades`` are addresses for other protocols, with the headers that say so.
        """
        self._inside = inside
        self._upgrades = upgrades or {}
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._inside(scope, receive, send)
            return
        out = _Out(send, head_only=scope["method"] == "HEAD")
        if self._origins:
            asked = Headers(scope=scope)
            origin = asked.get("origin")
            if origin is not None and origin.lower() in self._origins:
                out.more = _cors(origin)
                if scope["method"] == "OPTIONS" and "access-control-request-method" in asked:
                    await _preflight()(scope, receive, out)
                    return
            elif origin is not None:
                out.more = [(b"vary", b"origin")]
        reply: Reply | None = None
        try:
            await self._inside(scope, receive, out)
        except ClientDisconnect:
            pass  # there is nobody to answer
        except Exception as error:
            if out.has_begun:
                raise  # the connection is cut, so that nobody takes a part for the whole
            reply = self._reply(scope, error)
        if reply is not None:  # not sent above: an error keeps what it has broken off
            await reply(scope, receive, out)

    def _reply(self, scope: Scope, error: Exception) -> Reply:
        told, headers = self._told(scope, error)
        return error_reply(told, *headers)

    def _told(self, scope: Scope, error: Exception) -> tuple[OperationError, Sequence[Header]]:
        """Give what is said of an error, and the headers that belong to it."""
        if isinstance(error, HTTPException) and error.status_code == _NOT_ALLOWED:
            allowed = dict(error.headers or {}).get("Allow", "")
            message = f"{scope['method']} is not for this address"
            told = OperationError("METHOD_NOT_ALLOWED", message, allow=allowed.split(", "))
            return told, [(b"allow", allowed.encode())]
        if isinstance(error, HTTPException) and scope["path"] in self._upgrades:
            told = OperationError("UPGRADE_REQUIRED", "this address is for WebSocket clients")
            return told, self._upgrades[scope["path"]]
        if isinstance(error, HTTPException) and error.status_code == _NOT_FOUND:
            return OperationError("NOT_FOUND", "there is nothing at this address"), []
        told = translated(error)
        if told.code == "INTERNAL" and told is not error:
            _log.error("a request failed", exc_info=error)
        return told, []


class _Out:
    """The way out: it adds headers, leaves out bodies, and knows whether anything has left."""

    __slots__ = ("_head_only", "_send", "has_begun", "more")

    def __init__(self, send: Send, *, head_only: bool) -> None:
        self._send = send
        self._head_only = head_only
        self.has_begun = False
        self.more: list[Header] = []

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.has_begun = True
            if self.more:
                message = {**message, "headers": [*message.get("headers", ()), *self.more]}
        elif self._head_only and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        return self._send(message)


def _cors(origin: str) -> list[Header]:
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    ]


def _preflight() -> Any:  # noqa: ANN401 - an ASGI application
    return empty_reply(
        204,
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", _MAY_SEND),
        (b"access-control-max-age", _PREFLIGHT_AGE),
    )
