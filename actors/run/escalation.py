"""Escalation: what follows, and when, for an entry that does not end although it should.

A cancel request is recorded with the instant at which a harder one follows: asked, interrupted,
forced, ended without the entry. Those recorded instants are what counts; a request of an earlier
release has none, and gets the usual grace. A run whose time is up is interrupted at its deadline
and ended one grace later. Whatever else stops an entry (a drain, a failure, another activation)
gives it one grace; then its process is killed.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from perdure.actors.run.activation import Activation
from perdure.actors.run.status import CancelMode

if TYPE_CHECKING:
    from perdure.actors.run.core import Run

LAST_WORDS: Final = 100_000_000  # nanoseconds for an entry that was forced to come to its end
_ESCALATING: Final = frozenset({Activation.WORKING, Activation.INTERRUPTED, Activation.BROKEN})


class Step(Enum):
    """What follows."""

    INTERRUPT = "interrupt the entry"
    ASK_HARDER = "record that the run is asked to end in the next harder way"
    KILL = "wait no longer for the entry's process"
    END = "end the run without its entry"


class Due(NamedTuple):
    """A step, the instant at which it follows, and how long that is from its cause at most."""

    at: int
    step: Step
    within: int  # nanoseconds, whatever a clock says that was set meanwhile


def harder_at(mode: CancelMode, at: int, grace: int) -> int:
    """Give when a harder way follows on a request; after the hardest, the run is ended."""
    return at + (LAST_WORDS if mode is CancelMode.FORCE else grace)


def next_step(
    run: Run, state: Activation, grace: int, *, stopped_at: int | None, is_forced: bool
) -> Due | None:
    """Give what follows next; None if nothing does.

    ``stopped_at`` is when the entry was first told to stop, and ``is_forced`` whether its process
    is waited for no longer.
    """
    if not state.entry_is_at_work or state is Activation.FORCING:
        return None
    if run.cancel_mode is None and run.deadline is None and stopped_at is None:
        return None  # as with most runs
    due = []
    if state in _ESCALATING:
        due += [_of_cancel(run, grace), _of_time_limit(run, state, grace, stopped_at or 0)]
    if stopped_at is not None and state is Activation.BROKEN:
        due.append(Due(stopped_at + grace, Step.END, grace))
    elif stopped_at is not None and state is not Activation.INTERRUPTED and not is_forced:
        due.append(Due(stopped_at + grace, Step.KILL, grace))
    return min((each for each in due if each is not None), default=None, key=lambda each: each.at)


def _of_cancel(run: Run, grace: int) -> Due | None:
    mode, at = run.cancel_mode, run.cancel_deadline
    if mode is None:
        return None
    if at is None:
        at = harder_at(mode, run.cancel_at, grace)
    step = Step.END if mode is CancelMode.FORCE else Step.ASK_HARDER
    return Due(at, step, max(0, at - run.cancel_at))


def _of_time_limit(run: Run, state: Activation, grace: int, stopped_at: int) -> Due | None:
    if run.deadline is None:
        return None
    if state is Activation.WORKING:
        return Due(run.deadline, Step.INTERRUPT, run.deadline - (run.started_at or 0))
    return Due(max(run.deadline, stopped_at) + grace, Step.END, grace)
