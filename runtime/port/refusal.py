"""What the port itself says no to, and how: one JSON shape, and what to do next."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from perdure.runtime.kernel.errors import ERRORS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.runtime.kernel.errors import OperationError

    Header = tuple[bytes, bytes]


class PortRefusal(NamedTuple):
    """An error of the table in ``kernel.errors``, with a message that says what to do next."""

    code: str
    message: str
    details: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, error: OperationError) -> PortRefusal:
        """Say what an error from below says."""
        return cls(error.code, error.message, error.details)

    @property
    def status(self) -> int:
        """What HTTP says to it."""
        return ERRORS[self.code].status

    @property
    def retry_after(self) -> int | None:
        """After how many seconds to come again, if that is worth saying."""
        return ERRORS[self.code].retry_after


class PortRefused(Exception):
    """A request stops here. Raised by parsers; the connection answers and ends."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        """Say why, and what to do next."""
        super().__init__(message)
        self.refusal = PortRefusal(code, message, details or None)


def error_response(
    refusal: PortRefusal, *headers: Header, date: bytes, head_only: bool = False
) -> bytes:
    """Give a whole response that ends its connection."""
    code, message, details = refusal
    error = {"code": code, "message": message, "details": details}
    body = msgspec.json.encode({"error": error})
    lines = [b"%s: %s\r\n" % header for header in headers]
    if refusal.retry_after is not None:
        lines.append(b"retry-after: %d\r\n" % refusal.retry_after)
    head = (
        b"HTTP/1.1 %d %s\r\ndate: %s\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\nconnection: close\r\n%s\r\n"
    ) % (refusal.status, reason_phrase(refusal.status), date, len(body), b"".join(lines))
    return head if head_only else head + body


def no_content(*, date: bytes) -> bytes:
    """Put together a response without a body, that ends its connection; it has no length."""
    return b"HTTP/1.1 204 No Content\r\ndate: %s\r\nconnection: close\r\n\r\n" % date


def reason_phrase(status: int) -> bytes:
    """Give the words that usually stand behind a status."""
    return _REASONS.get(status, b"")


_REASONS: Final = {int(status): status.phrase.encode() for status in HTTPStatus}
