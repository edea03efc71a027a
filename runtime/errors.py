"""One table of errors for every surface: a code, whose fault it is, and what HTTP says to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from actors.errors import AnsweredOtherwise, Invalid, NoSuchQuestion, NotNow
from actors.mailbox import NoSuchActor
from eventlog.errors import Conflict, InvalidCursor, LogClosed, OutcomeUnknown, Unavailable


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """What a code means."""

    status: int
    retriable: bool
    meaning: str


ERRORS: Final = {
    "VALIDATION_ERROR": ErrorKind(422, retriable=False, meaning="the request makes no sense"),
    "INVALID_CURSOR": ErrorKind(400, retriable=False, meaning="the cursor is not a place here"),
    "PLUGIN_NOT_FOUND": ErrorKind(404, retriable=False, meaning="no such plugin is loaded"),
    "ENTRY_NOT_FOUND": ErrorKind(404, retriable=False, meaning="the plugin has no such entry"),
    "RUN_NOT_FOUND": ErrorKind(404, retriable=False, meaning="there is no such run"),
    "QUESTION_NOT_FOUND": ErrorKind(404, retriable=False, meaning="the run asks no such question"),
    "RUN_NOT_TERMINAL": ErrorKind(409, retriable=False, meaning="the run has not ended yet"),
    "RUN_NOT_RUNNING": ErrorKind(409, retriable=False, meaning="the run is not running"),
    "IDEMPOTENCY_CONFLICT": ErrorKind(
        409, retriable=False, meaning="the key stands for another request"
    ),
    "CONFLICT": ErrorKind(409, retriable=True, meaning="somebody else was faster; try again"),
    "PERMISSION_DENIED": ErrorKind(403, retriable=False, meaning="not yours to ask for"),
    "OVERLOADED": ErrorKind(503, retriable=True, meaning="too much is waiting; try again later"),
    "UNAVAILABLE": ErrorKind(
        503, retriable=True, meaning="going down or not up; ask again, with the same key"
    ),
    "INTERNAL": ErrorKind(500, retriable=True, meaning="our fault; the log has more"),
}


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


def translated(error: Exception) -> OperationError:  # noqa: C901, PLR0911 - a table, one row each
    """Give the error of the table for an error from below."""
    match error:
        case OperationError():
            return error
        case Invalid():
            return OperationError("VALIDATION_ERROR", str(error))
        case NotNow(status=status):
            return OperationError("RUN_NOT_RUNNING", str(error), status=status)
        case NoSuchQuestion(question_id=question_id):
            return OperationError("QUESTION_NOT_FOUND", str(error), question_id=question_id)
        case AnsweredOtherwise(question_id=question_id):
            return OperationError("CONFLICT", str(error), question_id=question_id)
        case NoSuchActor():
            return OperationError("RUN_NOT_FOUND", "there is no such run")
        case InvalidCursor(reason=reason):
            return OperationError("INVALID_CURSOR", str(error), reason=reason)
        case Unavailable():
            return OperationError("OVERLOADED", str(error))
        case Conflict():
            return OperationError("CONFLICT", str(error))
        case OutcomeUnknown():
            return OperationError("UNAVAILABLE", "whether it was done is not known; look again")
        case LogClosed():
            return OperationError("UNAVAILABLE", "this process is going down; ask again soon")
        case _:
            return OperationError("INTERNAL", "something went wrong here; it was logged")
