"""One table of errors for every surface: a code, whose fault it is, and what HTTP says to it.

The kernel's own codes are here. Services and features declare theirs when they are imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from perdure.actors.errors import (
    Invalid,
    TooLarge,
)
from perdure.eventlog.errors import (
    CodecError,
    Conflict,
    DamagedRecord,
    DiskFull,
    InvalidCursor,
    LogClosed,
    OutcomeUnknown,
    RecordTooLarge,
    StoreDamaged,
    Unavailable,
    UnknownEvent,
    UnreadableRecord,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """What a code means."""

    status: int  # of HTTP
    retriable: bool
    meaning: str
    remedy: str = ""  # what to do next
    command: str = ""  # what to do next at a terminal

    @property
    def retry_after(self) -> int | None:
        """After how many seconds to come again; 503 says so, as RFC 9110 has it, others do not."""
        return 1 if self.status == HTTPStatus.SERVICE_UNAVAILABLE else None


KERNEL_ERRORS: Final[Mapping[str, ErrorKind]] = {
    "VALIDATION_ERROR": ErrorKind(422, retriable=False, meaning="the request makes no sense"),
    "PAYLOAD_TOO_LARGE": ErrorKind(
        413,
        retriable=False,
        meaning="it has too many bytes",
        remedy="send less, or upload it as a blob",
    ),
    "UNSUPPORTED_MEDIA_TYPE": ErrorKind(
        415,
        retriable=False,
        meaning="the body is of another type than this takes",
        remedy="send it with the content type that is named",
    ),
    "BAD_REQUEST": ErrorKind(400, retriable=False, meaning="it is not HTTP as the RFCs have it"),
    "HEAD_TOO_LARGE": ErrorKind(431, retriable=False, meaning="its headers have too many bytes"),
    "EXPECTATION_FAILED": ErrorKind(
        417, retriable=False, meaning="it expects something that the server does not know"
    ),
    "REQUEST_TIMEOUT": ErrorKind(408, retriable=True, meaning="it came too slowly; send it again"),
    "HOST_REFUSED": ErrorKind(421, retriable=False, meaning="the server has no such name"),
    "ORIGIN_REFUSED": ErrorKind(403, retriable=False, meaning="pages from there are not allowed"),
    "TOO_MANY_CONNECTIONS": ErrorKind(
        503, retriable=True, meaning="no connection is free; try again later"
    ),
    "INVALID_CURSOR": ErrorKind(
        400,
        retriable=False,
        meaning="the cursor is not a place here",
        remedy="begin again without one, or with a cursor from an answer of this log",
        command="Pass a cursor from --json output of this log; without one you see now.",
    ),
    "INVALID_RANGE": ErrorKind(
        416,
        retriable=False,
        meaning="the blob has no such bytes",
        remedy="ask for bytes that it has",
    ),
    "NOT_FOUND": ErrorKind(
        404,
        retriable=False,
        meaning="there is nothing at this address",
        remedy="GET /docs shows what there is",
    ),
    "METHOD_NOT_ALLOWED": ErrorKind(
        405,
        retriable=False,
        meaning="this address does not take that method",
        remedy="use one of those it allows",
    ),
    "UPGRADE_REQUIRED": ErrorKind(
        426,
        retriable=False,
        meaning="this address is for WebSocket clients",
        remedy="connect with one; GET /asyncapi.json says what it can say",
    ),
    "IDEMPOTENCY_CONFLICT": ErrorKind(
        409,
        retriable=False,
        meaning="the key stands for another request",
        remedy="use a new key for a new request",
    ),
    "CONFLICT": ErrorKind(
        409, retriable=True, meaning="another request changed this first; try again"
    ),
    "PERMISSION_DENIED": ErrorKind(
        403, retriable=False, meaning="not yours to ask for", remedy="ask somebody who may"
    ),
    "OVERLOADED": ErrorKind(503, retriable=True, meaning="too much is waiting; try again later"),
    "UNAVAILABLE": ErrorKind(
        503, retriable=True, meaning="going down or not up; ask again, with the same key"
    ),
    "LOG_DAMAGED": ErrorKind(
        500,
        retriable=False,
        meaning="the disk has changed the log",
        remedy="`perdure log verify` tells more; restore a backup into another directory",
        command=(
            "Do not write to this log any more. Keep the file, and restore a backup into another"
            " directory:\n  perdure log restore BACKUP --data-dir DIR\n"
            "`perdure log verify` lists the damage."
        ),
    ),
    "LOG_UNSUPPORTED": ErrorKind(
        500,
        retriable=False,
        meaning="the log holds an event that this release does not know",
        remedy="upgrade this server",
        command="Upgrade Perdure to the release that has written to this log.",
    ),
    "INTERNAL": ErrorKind(
        500,
        retriable=True,
        meaning="our fault; the log has more",
        remedy="try again; if it stays, read the server's log",
    ),
}
ERRORS: Final = dict(KERNEL_ERRORS)  # and those that were declared


class ErrorDetail(TypedDict):
    """What went wrong, and what to do next."""

    code: str
    message: str
    details: dict[str, Any] | None


class OperationError(Exception):
    """An operation was refused or failed, with a code of the table."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        """Say what happened; ``details`` are data for programs."""
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.details = details or None

    @property
    def kind(self) -> ErrorKind:
        """What the code means."""
        return ERRORS[self.code]

    @property
    def advice(self) -> str:
        """What happened, and what to do next."""
        remedy = self.kind.remedy
        return f"{self.message}; {remedy}" if remedy else self.message

    def view(self) -> ErrorDetail:
        """Give it as every surface shows it."""
        return {"code": self.code, "message": self.advice, "details": self.details}


class Translation(NamedTuple):
    """What callers are told of an error from below; ``details`` are names of its attributes."""

    error: type[Exception]
    code: str
    details: tuple[str, ...] = ()
    message: str | None = None  # its own, unless stated
    streams: str = ""  # of an error about a stream: what the stream's name begins with

    def fits(self, error: Exception) -> bool:
        """Tell whether this is about an error."""
        if not isinstance(error, self.error):
            return False
        return not self.streams or getattr(error, "stream", "").startswith(self.streams)


# The one for the nearest class counts.
_TRANSLATIONS: Final = [
    Translation(TooLarge, "PAYLOAD_TOO_LARGE", ("size", "limit")),
    Translation(RecordTooLarge, "PAYLOAD_TOO_LARGE", ("size", "limit")),
    Translation(Invalid, "VALIDATION_ERROR"),
    Translation(InvalidCursor, "INVALID_CURSOR", ("reason",)),
    Translation(
        UnknownEvent,
        "LOG_UNSUPPORTED",
        ("name", "schema"),
        "the log holds an event of a newer release of Perdure",
    ),
    Translation(UnreadableRecord, "LOG_DAMAGED"),
    Translation(DamagedRecord, "LOG_DAMAGED", ("position",)),
    Translation(CodecError, "VALIDATION_ERROR"),
    Translation(DiskFull, "OVERLOADED", (), "the disk is full; make room there, then try again"),
    Translation(Unavailable, "OVERLOADED"),
    Translation(StoreDamaged, "LOG_DAMAGED", (), "the file of the log is damaged"),
    Translation(Conflict, "CONFLICT"),
    Translation(OutcomeUnknown, "UNAVAILABLE", (), "whether it was done is not known; look again"),
    Translation(LogClosed, "UNAVAILABLE", (), "this process is going down; ask again soon"),
]


def declare_errors(
    errors: Mapping[str, ErrorKind], *translations: Translation
) -> Mapping[str, ErrorKind]:
    """Add codes to the table, and what callers are told of errors from below; give the codes.

    A code means the same everywhere: declaring it with another meaning is refused.
    """
    for code, kind in errors.items():
        if ERRORS.setdefault(code, kind) != kind:
            raise ValueError(f"{code} is declared already, and means something else")
    for each in translations:
        if each.code not in ERRORS:
            raise ValueError(f"{each.code} is not declared")
        if each not in _TRANSLATIONS:
            _TRANSLATIONS.append(each)
    return errors


def translated(error: Exception) -> OperationError:
    """Give the error of the table for an error from below."""
    if isinstance(error, OperationError):
        return error
    fitting = [each for each in _TRANSLATIONS if each.fits(error)]
    if not fitting:
        return OperationError("INTERNAL", "something went wrong here; it was logged")
    classes = type(error).__mro__
    nearest = min(fitting, key=lambda each: classes.index(each.error))
    details = {name: getattr(error, name) for name in nearest.details}
    return OperationError(nearest.code, nearest.message or str(error), **details)
