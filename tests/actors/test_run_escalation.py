"""What follows, and when, for an entry that does not end although it should."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from perdure.actors.run.activation import Activation
from perdure.actors.run.core import RUN, Run
from perdure.actors.run.escalation import Step, harder_at, next_step
from perdure.actors.run.events import CancelEscalated, CancelRequested, RunEvent
from perdure.actors.run.status import CancelIntent, CancelMode
from tests.actors.given import given
from tests.actors.test_run_core import CREATED, SECOND, STARTED

A = Activation
GRACE = 5 * SECOND
STARTED_AT = STARTED.at
COOPERATIVE, INTERRUPT, FORCE = CancelMode


def asked(mode: CancelMode = COOPERATIVE, deadline: int | None = None) -> CancelRequested:
    """A cancel request at 10 seconds."""
    return CancelRequested(
        intent=CancelIntent.CANCEL,
        mode=mode,
        reason=None,
        by="b",
        at=10 * SECOND,
        deadline=deadline,
    )


def harder(mode: CancelMode, deadline: int | None = None) -> CancelEscalated:
    """A harder one at 20 seconds."""
    return CancelEscalated(mode=mode, at=20 * SECOND, deadline=deadline)


def running(*events: RunEvent, timeout: float | None = None) -> Run:
    """A run that was started, and what happened to it."""
    run: Run = given(RUN, replace(CREATED, timeout=timeout), STARTED, *events).state
    return run


def due(
    run: Run,
    state: Activation = A.WORKING,
    *,
    stopped_at: int | None = None,
    is_forced: bool = False,
) -> tuple[int, Step] | None:
    """What follows, and when."""
    found = next_step(run, state, GRACE, stopped_at=stopped_at, is_forced=is_forced)
    return None if found is None else (found.at, found.step)


@pytest.mark.parametrize(
    ("events", "state", "at", "step"),
    [
        ([asked(COOPERATIVE, 77)], A.WORKING, 77, Step.ASK_HARDER),
        ([asked(), harder(INTERRUPT, 78)], A.INTERRUPTED, 78, Step.ASK_HARDER),
        ([asked(), harder(INTERRUPT, 8), harder(FORCE, 79)], A.INTERRUPTED, 79, Step.END),
        ([asked(FORCE, 80)], A.BROKEN, 80, Step.END),
    ],
)
def test_the_newest_recorded_deadline_counts(
    events: list[RunEvent], state: Activation, at: int, step: Step
) -> None:
    """Asked, interrupted, forced, ended: each when the event before it says (R77)."""
    assert due(running(*events), state) == (at, step)


@pytest.mark.parametrize(
    ("events", "state", "at", "step"),
    [
        ([asked()], A.WORKING, 10 * SECOND + GRACE, Step.ASK_HARDER),
        ([asked(), harder(INTERRUPT)], A.INTERRUPTED, 20 * SECOND + GRACE, Step.ASK_HARDER),
        ([asked(), harder(FORCE)], A.INTERRUPTED, 20 * SECOND + SECOND // 10, Step.END),
    ],
)
def test_a_request_of_an_earlier_release_gets_the_usual_grace(
    events: list[RunEvent], state: Activation, at: int, step: Step
) -> None:
    """Its event has no deadline: a grace is counted from when it was made."""
    assert due(running(*events), state) == (at, step)


def test_a_request_is_recorded_with_the_instant_of_the_next() -> None:
    """A grace for those that may still obey, a moment for one that was forced."""
    assert [harder_at(mode, 7, GRACE) for mode in CancelMode] == [
        7 + GRACE,
        7 + GRACE,
        7 + SECOND // 10,
    ]


def test_a_run_whose_time_is_up_is_interrupted_and_ended_a_grace_later() -> None:
    """Counted from its deadline, or from the interrupt if that came later (R7)."""
    run = running(timeout=30)
    deadline = STARTED_AT + 30 * SECOND
    assert due(run) == (deadline, Step.INTERRUPT)
    assert due(run, A.INTERRUPTED, stopped_at=3) == (deadline + GRACE, Step.END)
    late = deadline + SECOND
    assert due(run, A.INTERRUPTED, stopped_at=late) == (late + GRACE, Step.END)


def test_what_is_due_first_comes_first() -> None:
    """A cancel request does not give a run more time than it has, nor a time limit a cancel."""
    deadline = STARTED_AT + 30 * SECOND
    patient = running(asked(deadline=deadline + 1), timeout=30)
    assert due(patient) == (deadline, Step.INTERRUPT)
    hasty = running(asked(deadline=deadline - 1), timeout=30)
    assert due(hasty) == (deadline - 1, Step.ASK_HARDER)


def test_an_execution_that_broke_ends_its_run_a_grace_later() -> None:
    """An entry that shields itself does not keep its failed run alive."""
    assert due(running(), A.BROKEN, stopped_at=7) == (7 + GRACE, Step.END)
    assert due(running(asked(deadline=3)), A.BROKEN, stopped_at=7) == (3, Step.ASK_HARDER)


@pytest.mark.parametrize("state", [A.WORKING, A.DRAINING, A.FENCED, A.LEFT_BEHIND])
def test_a_process_that_is_to_end_is_killed_after_one_grace(state: Activation) -> None:
    """Whatever stopped it; once."""
    assert due(running(), state, stopped_at=7) == (7 + GRACE, Step.KILL)
    assert due(running(), state, stopped_at=7, is_forced=True) is None


@pytest.mark.parametrize("state", [A.DRAINING, A.FENCED, A.LEFT_BEHIND])
def test_who_does_not_end_the_run_escalates_nothing(state: Activation) -> None:
    """The next host, or the activation in charge, sees to requests and time limits."""
    run = running(asked(deadline=3), timeout=1)
    assert due(run, state) is None
    assert due(run, state, stopped_at=7) == (7 + GRACE, Step.KILL)


def test_an_interrupted_entry_is_killed_when_its_request_says_so() -> None:
    """And not a grace after the interrupt was heard of."""
    run = running(asked(), harder(INTERRUPT, 99 * SECOND))
    assert due(run, A.INTERRUPTED, stopped_at=7) == (99 * SECOND, Step.ASK_HARDER)


@pytest.mark.parametrize(
    ("state", "stopped_at"), list(product([A.FORCING, A.ENDING, A.LETTING_GO, A.OVER], [None, 7]))
)
def test_nothing_follows_on_a_last_word(state: Activation, stopped_at: int | None) -> None:
    """Whoever says it says it to the end."""
    assert due(running(asked(), timeout=1), state, stopped_at=stopped_at) is None


def test_an_entry_that_may_work_on_is_left_alone() -> None:
    """Without a request or a limit nothing follows."""
    assert due(running()) is None


@pytest.mark.parametrize(
    ("run", "state", "stopped_at", "within"),
    [
        (running(asked(deadline=70 * SECOND)), A.WORKING, None, 60 * SECOND),
        (running(asked(), harder(INTERRUPT)), A.INTERRUPTED, 7, GRACE),
        (running(asked(deadline=3)), A.WORKING, None, 0),
        (running(timeout=30), A.WORKING, None, 30 * SECOND),
        (running(timeout=30), A.INTERRUPTED, 7, GRACE),
        (running(), A.BROKEN, 7, GRACE),
        (running(), A.DRAINING, 7, GRACE),
    ],
)
def test_a_step_says_how_long_it_may_be_waited_for(
    run: Run, state: Activation, stopped_at: int | None, within: int
) -> None:
    """From its cause to its instant, so that a clock that is set back later changes nothing."""
    found = next_step(run, state, GRACE, stopped_at=stopped_at, is_forced=False)
    assert found is not None
    assert found.within == within
