from __future__ import annotations

import pytest

from perdure.actors.run.commands import (
    Recover,
)
from perdure.actors.run.core import RUN
from perdure.actors.run.events import (
    Activated,
    CancelRequested,
    Deactivated,
    RunEvent,
    SleepBegun,
    StepRecorded,
)
from perdure.actors.run.status import CancelIntent, CancelMode, Status
from tests.actors.given import given
from tests.actors.test_run_core import ASKED, CREATED, SECOND, STARTED, export

RESUME = Recover(resumes=True, compatible=True, at=10 * SECOND)


def test_recovery_ends_what_was_asked_to_end() -> None:
    """Without calling the entry again, as the request's intent says."""
    stop = CancelRequested(
        intent=CancelIntent.TIMEOUT, mode=CancelMode.FORCE, reason=None, by="clock", at=0
    )
    run = given(RUN, CREATED, STARTED, stop).when(RESUME).allowed().state
    assert run.status is Status.TIMEOUT
    assert run.error.code == "TIMEOUT"


def test_recovery_ends_what_is_past_its_deadline() -> None:
    """Time is counted from the start, also while nobody was there (R7)."""
    late = Recover(resumes=True, compatible=True, at=61 * SECOND)
    run = given(RUN, CREATED, STARTED).when(late).allowed().state
    assert (run.status, run.error.code) == (Status.TIMEOUT, "TIMEOUT")
    assert "60 seconds" in run.error.message
    early = Recover(resumes=True, compatible=True, at=61 * SECOND - 1)
    given(RUN, CREATED, STARTED).when(early).then()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (Recover(resumes=False, compatible=True, at=0), "lost while"),
        (Recover(resumes=True, compatible=False, at=0), "not compatible"),
    ],
)
def test_recovery_gives_up_what_cannot_go_on(command: Recover, reason: str) -> None:
    """Lost is a failure that can be tried again (R33)."""
    run = given(RUN, CREATED, STARTED).when(command).allowed().state
    assert (run.status, run.error.code, run.error.retriable) == (Status.FAILED, "HOST_LOST", True)
    assert reason in run.error.message


def activations(count: int) -> list[RunEvent]:
    """Several activations, one after the other."""
    return [
        Activated(host="h", epoch=n, plugin_version="1", at=SECOND) for n in range(1, count + 1)
    ]


def test_a_run_that_gets_nowhere_is_given_up() -> None:
    """Three activations in a row without anything recorded are enough."""
    given(RUN, CREATED, *activations(2)).when(RESUME).then()
    run = given(RUN, CREATED, *activations(3)).when(RESUME).allowed().state
    assert run.error.code == "HOST_LOST"


@pytest.mark.parametrize(
    "progress",
    [StepRecorded(step="s", value=1, at=0), export(), ASKED],
    ids=lambda event: type(event).__name__,
)
def test_anything_recorded_counts_as_getting_somewhere(progress: RunEvent) -> None:
    """The count begins again."""
    given(RUN, CREATED, *activations(3), progress).when(RESUME).then()


def test_waiting_and_draining_do_not_count() -> None:
    """A long sleep, an open question or a drain may see any number of activations."""
    asleep = SleepBegun(step="s", until=1000 * SECOND, at=0)
    given(RUN, CREATED, asleep, *activations(9)).when(RESUME).then()
    given(RUN, CREATED, ASKED, *activations(9)).when(RESUME).then()
    drained = [
        event for n in range(1, 9) for event in (*activations(n)[-1:], Deactivated(epoch=n, at=0))
    ]
    given(RUN, CREATED, *drained).when(RESUME).then()
