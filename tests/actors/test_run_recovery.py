from __future__ import annotations

import msgspec
import pytest

from perdure.actors.run.commands import (
    Recover,
)
from perdure.actors.run.core import RUN
from perdure.actors.run.crashes import LIMIT
from perdure.actors.run.events import (
    Activated,
    CancelRequested,
    Deactivated,
    ProgressReported,
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


def activation(epoch: int, at: float = 1, suspects: int = 1) -> Activated:
    """An activation, by default of a run that was alone on the host that was lost before it."""
    return Activated(
        host=f"h{epoch}", epoch=epoch, plugin_version="1", at=round(at * SECOND), suspects=suspects
    )


def lost(times: int, suspects: int = 1) -> list[RunEvent]:
    """A run whose host was lost so often in a row, the last time just now."""
    return [activation(epoch, suspects=suspects) for epoch in range(1, times + 1)]


def found(at: float = 2, suspects: int = 1) -> Recover:
    """A host starts, and finds the run."""
    return Recover(resumes=True, compatible=True, suspects=suspects, at=round(at * SECOND))


FOREVER = msgspec.structs.replace(CREATED, timeout=None)


def test_a_run_that_seems_to_bring_its_host_down_is_given_up() -> None:
    """When that was lost so many times in a row; the error tells the rule."""
    given(RUN, FOREVER, *lost(LIMIT - 1)).when(found()).then()
    run = given(RUN, FOREVER, *lost(LIMIT)).when(found()).allowed().state
    assert (run.error.code, run.error.retriable) == ("HOST_LOST", True)
    assert "50 times in a row, each time within 10 minutes" in run.error.message
    assert "without progress" in run.error.message


def test_thirty_losses_are_not_enough() -> None:
    """Whatever the run did not report: power cuts and kills come in rows, too."""
    given(RUN, FOREVER, *lost(30)).when(found()).then()


@pytest.mark.parametrize(
    "progress",
    [
        StepRecorded(step="s", value=1, at=0),
        export(),
        ASKED,
        ProgressReported(progress=0.2, message=None, at=0),
    ],
    ids=lambda event: type(event).__name__,
)
def test_progress_of_any_kind_clears_a_run(progress: RunEvent) -> None:
    """The count begins again."""
    given(RUN, FOREVER, *lost(LIMIT), progress).when(found()).then()
    again = [activation(LIMIT + 1), *(activation(LIMIT + 1 + n) for n in range(1, LIMIT - 1))]
    given(RUN, FOREVER, *lost(LIMIT), progress, *again).when(found()).then()


def test_progress_that_was_made_before_is_none() -> None:
    """An entry that always comes as far as before, and never further, stays suspected."""
    reported = ProgressReported(progress=0.2, message=None, at=0)
    events = [event for again in lost(LIMIT + 1) for event in (again, reported)]
    assert given(RUN, FOREVER, *events).when(found()).allowed().state.error.code == "HOST_LOST"


def test_a_host_that_lasted_was_not_brought_down_by_the_run() -> None:
    """Losses count within ten minutes of the activation; a later one clears the run."""
    minutes = [activation(epoch, at=epoch * 601) for epoch in range(1, 100)]
    given(RUN, FOREVER, *minutes).when(found(at=100 * 601)).then()
    given(RUN, FOREVER, *lost(LIMIT)).when(found(at=602)).then()
    assert given(RUN, FOREVER, *lost(LIMIT)).when(found(at=601)).allowed().state.error


@pytest.mark.parametrize(("suspects", "losses"), [(10, LIMIT), (20, 2 * LIMIT), (100, 10 * LIMIT)])
def test_the_more_are_suspected_the_less_a_loss_counts(suspects: int, losses: int) -> None:
    """Among many it is hardly this one; but a run that is always among them ends at last."""
    many = found(suspects=suspects)
    given(RUN, FOREVER, *lost(losses - 1, suspects)).when(many).then()
    assert given(RUN, FOREVER, *lost(losses + 1, suspects)).when(many).allowed().state.error


def test_waiting_draining_and_processes_do_not_count() -> None:
    """A sleep, a question, a drain, an entry in a process: any number of activations is fine."""
    asleep = SleepBegun(step="s", until=1000 * SECOND, at=0)
    given(RUN, FOREVER, asleep, *lost(2 * LIMIT)).when(found()).then()
    given(RUN, FOREVER, ASKED, *lost(2 * LIMIT)).when(found()).then()
    drained = [
        event
        for each in range(1, 2 * LIMIT)
        for event in (activation(each), Deactivated(epoch=each, at=0))
    ]
    given(RUN, FOREVER, *drained).when(found()).then()
    given(RUN, FOREVER, *lost(2 * LIMIT, suspects=0)).when(found(suspects=0)).then()
