"""Replies: what is sent back, as small ASGI applications.

A handler gives a reply, or any other ASGI application that answers. Errors have one shape,
``{"error": {"code", "message", "details"}}``, and the status of the one table of errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict

from perdure.runtime.kernel.errors import ErrorDetail
from perdure.runtime.kernel.strict_json import JSON, encode_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Receive, Scope, Send

    from perdure.runtime.kernel.errors import OperationError

Header = tuple[bytes, bytes]

_NOSNIFF: Final = (b"x-content-type-options", b"nosniff")
_JSON_HEADERS: Final = (
    (b"content-type", JSON.encode()),
    (b"cache-control", b"no-store"),
    _NOSNIFF,
)


class ErrorBody(TypedDict):
    """The body of every error."""

    error: ErrorDetail


class Reply:
    """A whole answer: status, headers, and a body that is there already."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes, headers: Iterable[Header]) -> None:
        """Its length is added to the headers."""
        self.status = status
        self.body = body
        self.headers = [*headers, (b"content-length", b"%d" % len(body))]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Answer."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


def json_reply(value: Any, status: int = 200, *headers: Header) -> Reply:  # noqa: ANN401 - any JSON
    """Answer with a JSON value."""
    return Reply(status, encode_json(value), (*_JSON_HEADERS, *headers))


def text_reply(text: str, media_type: str, *headers: Header) -> Reply:
    """Answer with a text."""
    kind = (b"content-type", f"{media_type}; charset=utf-8".encode())
    return Reply(200, text.encode(), (kind, _NOSNIFF, *headers))


def empty_reply(status: int, *headers: Header) -> Reply:
    """Answer with nothing but headers."""
    reply = Reply(status, b"", headers)
    if status in _WITHOUT_LENGTH:
        reply.headers.pop()
    return reply


_WITHOUT_LENGTH: Final = frozenset({204, 304})


def error_reply(error: OperationError, *headers: Header) -> Reply:
    """Answer with an error of the table."""
    body: ErrorBody = {"error": error.view()}
    return json_reply(body, error.kind.status, *headers, *headers_of(error))


def headers_of(error: OperationError) -> Iterable[Header]:
    """Give the headers that HTTP wants beside some errors."""
    if error.kind.retry_after is not None:
        yield b"retry-after", b"%d" % error.kind.retry_after
    if error.code == "INVALID_RANGE" and error.details and "size" in error.details:
        yield b"content-range", b"bytes */%d" % error.details["size"]
