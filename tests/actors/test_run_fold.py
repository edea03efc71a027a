"""What each event makes of a run, and nothing besides."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import fields, replace

from perdure.actors.run.core import INPUT_REQUIRED, RETRYING, RUN, Run, describe, evolve
from perdure.actors.run.events import (
    Activated,
    Answered,
    CancelEscalated,
    CancelRequested,
    ChildStarted,
    Deactivated,
    LogBatch,
    ProgressReported,
    QuestionAsked,
    ResultMarked,
    ResultRef,
    RunEnded,
    RunEvent,
    SleepBegun,
    StageChanged,
    StepFailed,
    StepRecorded,
)
from perdure.actors.run.status import CancelIntent, CancelMode, Outcome, Status
from tests.actors.test_run_core import BOOM, CREATED, SECOND, STARTED, export

# A run in the middle of everything, so that whatever an event resets is seen.
BUSY = replace(
    evolve(evolve(None, CREATED), STARTED),
    crashes=2.0,
    host="h",
    asleep_until=50,
    progress=0.1,
    message="m",
    stage="s",
    open_questions=frozenset({"q1"}),
    answers={"q0": "a0"},
    children=("r0",),
    exports=3,
    marked=(1,),
    marked_refs=(ResultRef(type="text"),),
)
CLEARED = {"is_idle": False, "crashes": 0.0}  # what progress makes of a run
REQUEST = CancelRequested(
    intent=CancelIntent.STOP, mode=CancelMode.COOPERATIVE, reason="r", by="b", at=9
)


def changes(before: Run, after: Run) -> dict[str, Any]:
    """The fields that differ, with their new values."""
    names = [field.name for field in fields(Run)]
    return {n: getattr(after, n) for n in names if getattr(before, n) != getattr(after, n)}


@pytest.mark.parametrize(
    ("event", "changed"),
    [
        (
            Activated(host="h2", epoch=2, plugin_version="2", at=49),  # it sleeps, and asks
            {"epoch": 2, "plugin_version": "2", "host": "h2", "activated_at": 49, "is_idle": False},
        ),
        (Deactivated(epoch=1, at=9), {"active": False}),
        (
            ProgressReported(progress=0.7, message=None, at=9),
            {"progress": 0.7, "message": None, **CLEARED},
        ),
        (ProgressReported(progress=0.1, message="n", at=9), {"message": "n"}),
        (
            ProgressReported(progress=0.7, message=None, keeps_message=True, at=9),
            {"progress": 0.7, **CLEARED},
        ),
        (
            ProgressReported(progress=0.7, message="n", stage="t", at=9),
            {"progress": 0.7, "message": "n", "stage": "t", **CLEARED},
        ),
        (StageChanged(stage="t", message=None, at=9), {"stage": "t", "message": None}),
        (LogBatch(lines=(), dropped=0, at=9), {}),
        (export(4), {"exports": 4, **CLEARED}),
        (ResultMarked(items=(3, 2), at=9), {"marked": (3, 2), "marked_refs": ()}),
        (
            ResultMarked(items=(3,), refs=(ResultRef(type="url"),), at=9),
            {"marked": (3,), "marked_refs": (ResultRef(type="url"),)},
        ),
        (
            StepRecorded(step="a", value=1, at=9),
            CLEARED,
        ),
        (
            StepFailed(step="a", tries=1, error=BOOM, retry_at=None, at=9),
            CLEARED,
        ),
        (
            StepFailed(step="a", tries=1, error=BOOM, retry_at=99, at=9),
            {"asleep_until": 99, "retrying": {"a"}, **CLEARED},
        ),
        (SleepBegun(step="b", until=3, at=9), CLEARED),  # another sleeps longer
        (SleepBegun(step="a", until=77, at=9), {"asleep_until": 77, **CLEARED}),
        (
            QuestionAsked(step="a", question_id="q2", question="?", at=9),
            {"open_questions": {"q1", "q2"}, **CLEARED},
        ),
        (
            Answered(question_id="q1", answer="a1", by="b", at=9),
            {
                "open_questions": frozenset(),
                "answers": {"q0": "a0", "q1": "a1"},
                **CLEARED,
            },
        ),
        (
            ChildStarted(step="a", child_run_id="r1", at=9),
            {"children": ("r0", "r1"), **CLEARED},
        ),
        (
            REQUEST,
            {
                "status": Status.CANCEL_REQUESTED,
                "cancel": REQUEST,
                "cancel_mode": CancelMode.COOPERATIVE,
                "cancel_at": 9,
            },
        ),
        (
            CancelEscalated(mode=CancelMode.FORCE, at=9, deadline=10),
            {"cancel_mode": CancelMode.FORCE, "cancel_at": 9, "cancel_deadline": 10},
        ),
        (
            RunEnded(outcome=Outcome.FAILED, error=BOOM, result=(2,), at=9),
            {
                "status": Status.FAILED,
                "active": False,
                "finished_at": 9,
                "error": BOOM,
                "result": (2,),
            },
        ),
    ],
    ids=lambda value: "" if isinstance(value, dict) else type(value).__name__,
)
def test_an_event_changes_what_it_is_about_and_nothing_else(
    event: RunEvent, changed: dict[str, Any]
) -> None:
    """Every event, on a run that has something in every field."""
    assert changes(BUSY, evolve(BUSY, event)) == changed


@pytest.mark.parametrize(
    ("until", "questions", "is_idle"),
    [(0, (), True), (10, (), True), (11, (), False), (0, ("q",), False)],
    ids=["works", "has just woken up", "sleeps", "asks"],
)
def test_an_activation_is_idle_unless_the_run_waits(
    until: int, questions: tuple[str, ...], *, is_idle: bool
) -> None:
    """Being called while asleep or waiting for an answer says nothing about getting nowhere."""
    run = replace(BUSY, asleep_until=until, open_questions=frozenset(questions))
    again = evolve(run, Activated(host="h", epoch=2, plugin_version="1", suspects=1, at=10))
    assert again.is_idle is is_idle
    assert again.crashes == BUSY.crashes + 1  # that of the activation before


def test_letting_go_is_no_loss() -> None:
    """An activation after a drain counts nothing."""
    run = evolve(BUSY, Deactivated(epoch=1, at=9))
    again = Activated(host="h", epoch=2, plugin_version="1", suspects=1, at=10)
    assert evolve(run, again).crashes == BUSY.crashes


@pytest.mark.parametrize(
    "outcome",
    [
        StepRecorded(step="a", value=1, at=9),
        StepFailed(step="a", tries=2, error=BOOM, retry_at=None, at=9),
    ],
    ids=["done", "failed"],
)
def test_the_stage_says_retrying_as_long_as_a_step_is_tried_again(outcome: RunEvent) -> None:
    """When the last one has its outcome it is over; a stage of the entry's own is left alone."""
    failed = [StepFailed(step=step, tries=1, error=BOOM, retry_at=99, at=9) for step in ("a", "b")]
    stage = StageChanged(stage=RETRYING, message="m", at=9)
    waiting = evolve(evolve(evolve(BUSY, failed[0]), failed[1]), stage)
    one = evolve(waiting, outcome)
    assert (one.stage, one.message, one.retrying) == (RETRYING, "m", frozenset("b"))
    none = evolve(one, StepRecorded(step="b", value=1, at=9))
    assert (none.stage, none.message, none.retrying) == (None, None, frozenset())
    own = evolve(one, StageChanged(stage="mine", message="n", at=9))
    assert evolve(own, StepRecorded(step="b", value=1, at=9)).stage == "mine"


def test_an_activation_does_not_undo_a_cancel() -> None:
    """History is never refused, and a run that was asked to end stays asked."""
    run = evolve(evolve(BUSY, REQUEST), Activated(host="h", epoch=2, plugin_version="1", at=9))
    assert run.status is Status.CANCEL_REQUESTED


def test_history_begins_with_the_creation() -> None:
    """Anything else is no history of a run; what came instead is named."""
    with pytest.raises(TypeError, match="a run begins with RunCreated, not Activated"):
        evolve(None, STARTED)


def test_what_is_no_event_is_a_bug() -> None:
    """It is not passed over in silence."""
    with pytest.raises(AssertionError, match="PLUGIN_ERROR"):
        evolve(BUSY, BOOM)  # type: ignore[arg-type]


def test_a_run_is_over_with_its_end() -> None:
    """Then its stream is sealed."""
    assert not RUN.is_over(BUSY)
    assert RUN.is_over(
        evolve(BUSY, RunEnded(outcome=Outcome.SUCCEEDED, error=None, result=(), at=9))
    )


def test_followers_filter_by_whose_it_is_and_where_it_stands() -> None:
    """Each event carries these; progress as soon as there is one."""
    whose = {"tenant": "local", "plugin_id": "demo", "entry_id": "count", "task_id": "t"}
    created = evolve(None, replace(CREATED, task_id="t"))
    started = evolve(created, STARTED)
    halfway = evolve(started, ProgressReported(progress=0.0, message=None, at=SECOND))
    assert describe(None, created) == whose | {"status": "queued", "changed": True}
    assert describe(created, started) == whose | {"status": "running", "changed": True}
    assert describe(started, halfway) == whose | {
        "status": "running",
        "changed": False,
        "progress": 0.0,
    }


def test_a_step_that_is_not_tried_again_lets_nothing_sleep() -> None:
    """Only one with another try ahead waits for it."""
    failed = StepFailed(step="a", tries=1, error=BOOM, retry_at=None, at=9)
    assert evolve(replace(BUSY, asleep_until=0), failed).asleep_until == 0


@pytest.mark.parametrize(
    ("stage", "others", "after"),
    [
        (INPUT_REQUIRED, (), None),
        (INPUT_REQUIRED, ("q2",), INPUT_REQUIRED),
        ("baking", (), "baking"),
        ("baking", ("q2",), "baking"),
        (None, (), None),
    ],
)
def test_with_the_last_answer_a_run_is_at_work_again(
    stage: str | None, others: tuple[str, ...], after: str | None
) -> None:
    """Until then input is required; a stage that the entry has named stays."""
    run = replace(BUSY, stage=stage, message="hm?", open_questions=frozenset({"q1", *others}))
    answered = evolve(run, Answered(question_id="q1", answer=1, by="b", at=9))
    assert (answered.stage, answered.open_questions) == (after, frozenset(others))
    assert answered.message == (None if stage == INPUT_REQUIRED != after else "hm?")
