"""The state machine of a run: seven statuses and the moves between them.

    queued ──────► running ──────► succeeded | failed | canceled | timeout
       │              │                ▲
       ▼              ▼                │
    canceled     cancel_requested ─────┘

A run that was asked to stop may still finish first, fail, or run out of time: what happened is
what is recorded. Nothing leads out of the four ends.

``TRANSITIONS`` is what the rules of a run (``perdure.actors.run.core``) run on: a command that
needs a move which is not in the row of the run's status is refused, or changes nothing.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final

from perdure.actors.errors import NotNow

if TYPE_CHECKING:
    from collections.abc import Mapping


class Outcome(StrEnum):
    """How a run ended. Each outcome is a status of the same name."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMEOUT = "timeout"

    __hash__ = str.__hash__  # that of an enumeration is slow

    @property
    def status(self) -> Status:
        """The status of a run that ended so."""
        return Status(self.value)


class Status(StrEnum):
    """Where a run stands, as every surface shows it."""

    QUEUED = "queued"
    RUNNING = "running"
    CANCEL_REQUESTED = "cancel_requested"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMEOUT = "timeout"

    __hash__ = str.__hash__

    def __init__(self, value: str) -> None:
        """Know once whether nothing can follow: it is asked often."""
        self.is_terminal = value in set(Outcome)


class CancelIntent(StrEnum):
    """Why a run is asked to end: somebody cancels it, stops it to resume later, or time is up."""

    CANCEL = "cancel"
    STOP = "stop"
    TIMEOUT = "timeout"


class CancelMode(IntEnum):
    """How hard a run is asked to end. A request can only become harder."""

    COOPERATIVE = 0  # the flag is set; the entry sees it when it looks
    INTERRUPT = 1  # its scope is cancelled, its process gets SIGTERM
    FORCE = 2  # its process is killed; nobody waits for it


class Move(StrEnum):
    """What can be done to a run that has not ended, as a refusal names it."""

    ACTIVATE = "activating"
    WORK = "recording outputs"
    ANSWER = "answering"
    CANCEL = "canceling"

    __hash__ = str.__hash__


_ENDS: Final[Mapping[Move | Outcome, Status]] = {outcome: outcome.status for outcome in Outcome}
_CANCELED: Final[Mapping[Move | Outcome, Status]] = {Outcome.CANCELED: Status.CANCELED}
_OVER: Final[Mapping[Move | Outcome, Status]] = {}

TRANSITIONS: Final[Mapping[Status, Mapping[Move | Outcome, Status]]] = {
    # A cancel request of a queued run is recorded together with its end.
    Status.QUEUED: {Move.ACTIVATE: Status.RUNNING, Move.CANCEL: Status.QUEUED, **_CANCELED},
    Status.RUNNING: {
        Move.ACTIVATE: Status.RUNNING,
        Move.WORK: Status.RUNNING,
        Move.ANSWER: Status.RUNNING,
        Move.CANCEL: Status.CANCEL_REQUESTED,
        **_ENDS,
    },
    Status.CANCEL_REQUESTED: {
        Move.WORK: Status.CANCEL_REQUESTED,
        Move.CANCEL: Status.CANCEL_REQUESTED,
        **_ENDS,
    },
    Status.SUCCEEDED: _OVER,
    Status.FAILED: _OVER,
    Status.CANCELED: _OVER,
    Status.TIMEOUT: _OVER,
}


def can(status: Status, move: Move | Outcome) -> bool:
    """Tell whether a run in this status can move so."""
    return move in TRANSITIONS[status]


def require(status: Status, move: Move | Outcome) -> None:
    """Refuse a move that a run in this status cannot make."""
    if move not in TRANSITIONS[status]:
        raise NotNow(move.value, status)


def moved(status: Status, move: Move | Outcome) -> Status:
    """Give the status after a move that has happened; a move without an edge changes nothing."""
    return TRANSITIONS[status].get(move, status)


TERMINAL: Final = frozenset(status for status, moves in TRANSITIONS.items() if not moves)
ENDED: Final = frozenset(status.value for status in TERMINAL)  # as texts, for those who read them
OPEN: Final = frozenset(status.value for status in Status) - ENDED
