"""One table of errors for every surface: a code, whose fault it is, and what HTTP says to it."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypedDict

from perdure.actors.errors import (
    AnsweredOtherwise,
    Invalid,
    NoSuchActor,
    NoSuchQuestion,
    NotNow,
    TooLarge,
)
from perdure.eventlog.errors import (
    CodecError,
    Conflict,
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


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """What a code means."""

    status: int  # of HTTP
    retriable: bool
    meaning: str
    remedy: str = ""  # what to do next

    @property
    def retry_after(self) -> int | None:
        """After how many seconds to come again; 503 says so, as RFC 9110 has it, others do not."""
        return 1 if self.status == HTTPStatus.SERVICE_UNAVAILABLE else None


ERRORS: Final = {
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
    ),
    "PLUGIN_NOT_FOUND": ErrorKind(
        404,
        retriable=False,
        meaning="no such plugin is loaded",
        remedy="list the plugins to see what can be run",
    ),
    "ENTRY_NOT_FOUND": ErrorKind(404, retriable=False, meaning="the plugin has no such entry"),
    "RUN_NOT_FOUND": ErrorKind(
        404, retriable=False, meaning="there is no such run", remedy="list the runs to find its id"
    ),
    "QUESTION_NOT_FOUND": ErrorKind(
        404,
        retriable=False,
        meaning="the run asks no such question",
        remedy="read `runs.questions`: it has those that are open",
    ),
    "UPLOAD_NOT_FOUND": ErrorKind(
        404,
        retriable=False,
        meaning="no such upload is open",
        remedy="open a new upload for the run",
    ),
    "BLOB_NOT_FOUND": ErrorKind(
        404,
        retriable=False,
        meaning="there is no such blob",
        remedy="read the run's exports: `binary_url` ends with the hash",
    ),
    "BLOB_DAMAGED": ErrorKind(
        500,
        retriable=False,
        meaning="the disk has changed the blob",
        remedy="restore it from a backup, or run its run again",
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
    "QUOTA_EXCEEDED": ErrorKind(
        507,
        retriable=False,
        meaning="there is no room for more blobs",
        remedy="remove old data or raise the quota",
    ),
    "RUN_NOT_TERMINAL": ErrorKind(409, retriable=False, meaning="the run has not ended yet"),
    "RUN_NOT_RUNNING": ErrorKind(
        409,
        retriable=False,
        meaning="the run is not running",
        remedy="read the run to see how it stands",
    ),
    "IDEMPOTENCY_CONFLICT": ErrorKind(
        409,
        retriable=False,
        meaning="the key stands for another request",
        remedy="use a new key for a new request",
    ),
    "SECRET_REQUIRED": ErrorKind(
        409, retriable=False, meaning="a secret is not there any more; pass it again"
    ),
    "CONFLICT": ErrorKind(409, retriable=True, meaning="somebody else was faster; try again"),
    "ALREADY_ANSWERED": ErrorKind(
        409,
        retriable=False,
        meaning="the question has another answer already",
        remedy="read the run to go on",
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
    ),
    "LOG_UNSUPPORTED": ErrorKind(
        500,
        retriable=False,
        meaning="the log holds an event that this release does not know",
        remedy="upgrade this server",
    ),
    "INTERNAL": ErrorKind(
        500,
        retriable=True,
        meaning="our fault; the log has more",
        remedy="try again; if it stays, read the server's log",
    ),
}


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


class _Row(NamedTuple):
    """What callers are told of an error from below; ``details`` are names of its attributes."""

    error: type[Exception]
    code: str
    details: tuple[str, ...] = ()
    message: str | None = None  # its own, unless stated


# The first row that fits counts.
_FROM_BELOW: Final = (
    _Row(TooLarge, "PAYLOAD_TOO_LARGE", ("size", "limit")),
    _Row(RecordTooLarge, "PAYLOAD_TOO_LARGE", ("size", "limit")),
    _Row(Invalid, "VALIDATION_ERROR"),
    _Row(NotNow, "RUN_NOT_RUNNING", ("status",)),
    _Row(NoSuchQuestion, "QUESTION_NOT_FOUND", ("question_id",)),
    _Row(AnsweredOtherwise, "ALREADY_ANSWERED", ("question_id",)),
    _Row(NoSuchActor, "RUN_NOT_FOUND", (), "there is no such run"),
    _Row(InvalidCursor, "INVALID_CURSOR", ("reason",)),
    _Row(
        UnknownEvent,
        "LOG_UNSUPPORTED",
        ("name", "schema"),
        "the log holds an event of a newer release of Perdure",
    ),
    _Row(UnreadableRecord, "LOG_DAMAGED"),
    _Row(CodecError, "VALIDATION_ERROR"),
    _Row(DiskFull, "OVERLOADED", (), "the disk is full; make room there, then try again"),
    _Row(Unavailable, "OVERLOADED"),
    _Row(StoreDamaged, "LOG_DAMAGED", (), "the file of the log is damaged"),
    _Row(Conflict, "CONFLICT"),
    _Row(OutcomeUnknown, "UNAVAILABLE", (), "whether it was done is not known; look again"),
    _Row(LogClosed, "UNAVAILABLE", (), "this process is going down; ask again soon"),
)


def translated(error: Exception) -> OperationError:
    """Give the error of the table for an error from below."""
    if isinstance(error, OperationError):
        return error
    for row in _FROM_BELOW:
        if isinstance(error, row.error):
            details = {name: getattr(error, name) for name in row.details}
            return OperationError(row.code, row.message or str(error), **details)
    return OperationError("INTERNAL", "something went wrong here; it was logged")
