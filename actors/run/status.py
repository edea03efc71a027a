"""The state machine of a run: seven statuses and the moves between them.

    queued ──────► running ──────► succeeded | failed | canceled | timeout
       │              │                ▲
       ▼              ▼                │
    canceled     cancel_requested ─────┘

A run that was asked to stop may still finish first, fail, or run out of time: what happened is
what is recorded. Nothing leads out of the four ends.
"""

from enum import IntEnum, StrEnum
from typing import Final


class Status(StrEnum):
    """Where a run stands, as every surface shows it."""

    QUEUED = "queued"
    RUNNING = "running"
    CANCEL_REQUESTED = "cancel_requested"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMEOUT = "timeout"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can follow."""
        return self in TERMINAL


class Outcome(StrEnum):
    """How a run ended. Each outcome is a status of the same name."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMEOUT = "timeout"

    @property
    def status(self) -> Status:
        """The status of a run that ended so."""
        return Status(self.value)


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


TERMINAL: Final = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELED, Status.TIMEOUT})
ENDED: Final = frozenset(status.value for status in TERMINAL)  # as texts, for those who read them
OPEN: Final = frozenset(status.value for status in Status) - ENDED

MOVES: Final = {
    Status.QUEUED: frozenset({Status.RUNNING, Status.CANCELED}),
    Status.RUNNING: TERMINAL | {Status.CANCEL_REQUESTED},
    Status.CANCEL_REQUESTED: TERMINAL,
    **dict.fromkeys(TERMINAL, frozenset[Status]()),
}
