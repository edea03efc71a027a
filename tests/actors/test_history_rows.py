"""What happened inside a run, as rows."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from perdure.actors.run.core import evolve
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
    RunCreated,
    RunError,
    RunEvent,
    SleepBegun,
    StageChanged,
    StepFailed,
    StepRecorded,
)
from perdure.actors.run.history_rows import HISTORY_NAMES, HistoryRow, history_rows
from perdure.actors.run.preview import PREVIEW
from perdure.actors.run.status import CancelIntent, CancelMode, Outcome
from tests.actors.test_run_core import BOOM, CREATED, SECOND, STARTED, ended, export

QUIET = {RunCreated, ProgressReported, StageChanged, LogBatch, ResultMarked}
ERROR = {"code": "PLUGIN_ERROR", "message": "boom", "details": None, "retriable": False}


def told(*history: RunEvent) -> list[HistoryRow]:
    """The rows of a run with this history; each is of its type."""
    run, rows = evolve(None, CREATED), list[HistoryRow]()
    for event in history:
        rows += history_rows(run, event)
        run = evolve(run, event)
    assert msgspec.convert(rows, list[HistoryRow]) == rows
    return rows


def last(*history: RunEvent) -> dict[str, Any]:
    """The row that the last event of a history adds."""
    return dict(told(STARTED, *history)[-1])


def test_every_event_has_a_row_or_is_known_to_have_none() -> None:
    """A new event is not forgotten: creation, progress, stages, lines, markings are elsewhere."""
    kinds = set(get_args(RunEvent))
    assert {kind.event_name for kind in kinds - QUIET} == HISTORY_NAMES
    for quiet in (
        ProgressReported(progress=0.5, message=None, at=0),
        StageChanged(stage="s", message=None, at=0),
        LogBatch(lines=(), dropped=0, at=0),
        ResultMarked(items=(), at=0),
    ):
        assert told(quiet) == []


def test_an_activation_says_who_executes_the_run() -> None:
    """The host, the number of the activation, the version of the plugin, and when."""
    assert told(STARTED) == [
        {"at": 1.0, "what": "activated", "epoch": 1, "host": "h", "plugin_version": "1"}
    ]


AGAIN = Activated(host="g", epoch=2, plugin_version="1", at=5 * SECOND)
LOST = ended(Outcome.FAILED, RunError(code="HOST_LOST", message="gone"))


@pytest.mark.parametrize(
    ("history", "how", "at"),
    [
        ((Deactivated(epoch=1, at=2 * SECOND),), "drained", 2.0),
        ((AGAIN,), "lost", 5.0),
        ((LOST,), "lost", 3.0),
        ((ended(Outcome.FAILED),), "ended", 3.0),
        ((ended(Outcome.SUCCEEDED),), "ended", 3.0),
    ],
)
def test_an_activation_is_over_in_one_of_three_ways(
    history: tuple[RunEvent, ...], how: str, at: float
) -> None:
    """Its host drained, the run ended, or nothing more came of it until another one took over."""
    over = [row for row in told(STARTED, *history) if row["what"] == "deactivated"]
    assert over == [{"at": at, "what": "deactivated", "epoch": 1, "how": how}]


def test_an_activation_is_over_once() -> None:
    """What was drained is not lost or ended as well; what was never begun is not over."""
    drained = Deactivated(epoch=1, at=2 * SECOND)
    names = [row["what"] for row in told(STARTED, drained, AGAIN, ended(Outcome.SUCCEEDED))]
    assert names == ["activated", "deactivated", "activated", "deactivated", "ended"]
    assert [row["what"] for row in told(ended(Outcome.CANCELED))] == ["ended"]


def test_a_step_has_a_row_for_each_try_and_one_for_its_value() -> None:
    """When it failed and why, when it is tried again if it is, and when it was recorded."""
    failed = StepFailed(step="s", tries=1, error=BOOM, retry_at=9 * SECOND, at=2 * SECOND)
    final = StepFailed(step="s", tries=2, error=BOOM, retry_at=None, at=9 * SECOND)
    value = StepRecorded(step="s", value={"pages": 3}, at=10 * SECOND)
    assert told(failed, final, value) == [
        {
            "at": 2.0,
            "what": "step_failed",
            "step": "s",
            "tries": 1,
            "error": ERROR,
            "retry_at": 9.0,
        },
        {
            "at": 9.0,
            "what": "step_failed",
            "step": "s",
            "tries": 2,
            "error": ERROR,
            "retry_at": None,
        },
        {
            "at": 10.0,
            "what": "step_recorded",
            "step": "s",
            "size": 11,
            "preview": '{"pages":3}',
        },
    ]


@pytest.mark.parametrize(
    ("value", "size", "preview"),
    [
        (None, 4, "null"),
        ("x" * 1000, 1002, '"' + "x" * (PREVIEW - 1)),
        ("ü" * 1000, 2002, '"' + "ü" * (PREVIEW - 1)),
        ("𝄞" * 1000, 4002, '"' + "𝄞" * (PREVIEW - 1)),
        (b"abc", 6, '"YWJj"'),
    ],
)
def test_of_a_value_there_is_the_beginning_and_the_size(
    value: Any, size: int, preview: str
) -> None:
    """However large it is, and in whole characters."""
    row = last(StepRecorded(step="s", value=value, at=0))
    assert (row["size"], row["preview"]) == (size, preview)


def test_waits_say_what_they_wait_for() -> None:
    """A sleep its end; a question its text, or what it is; an answer who gave it."""
    assert last(SleepBegun(step="nap", until=70 * SECOND, at=10 * SECOND)) == {
        "at": 10.0,
        "what": "sleep_begun",
        "step": "nap",
        "until": 70.0,
    }
    asked = QuestionAsked(step="ask", question_id="q", question={"text": "Go?"}, at=0)
    assert last(asked) == {
        "at": 0.0,
        "what": "question_asked",
        "step": "ask",
        "question_id": "q",
        "size": 14,
        "preview": "Go?",
    }
    number = QuestionAsked(step="ask", question_id="q", question=[1], at=0)
    assert last(number)["preview"] == "[1]"
    long = QuestionAsked(step="ask", question_id="q", question="x" * 999, at=0)
    assert last(long)["preview"] == "x" * PREVIEW
    assert last(asked, Answered(question_id="q", answer=True, by="local/me", at=SECOND)) == {
        "at": 1.0,
        "what": "answered",
        "question_id": "q",
        "by": "local/me",
        "size": 4,
        "preview": "true",
    }


def test_children_and_exports_are_named_by_their_ids() -> None:
    """So that they can be read; of an export there is no content."""
    assert last(ChildStarted(step="go", child_run_id="c", at=0)) == {
        "at": 0.0,
        "what": "child_started",
        "step": "go",
        "child_run_id": "c",
    }
    assert last(export(1, description="d")) == {
        "at": 0.0,
        "what": "exported",
        "export_item_id": f"{CREATED.run_id}.1",
        "type": "text",
        "description": "d",
    }


def test_a_cancel_request_says_who_asked_and_when_a_harder_way_follows() -> None:
    """And each escalation the same of itself; without a deadline there is none."""
    asked = CancelRequested(
        intent=CancelIntent.CANCEL,
        mode=CancelMode.COOPERATIVE,
        reason="enough",
        by="local/me",
        at=2 * SECOND,
        deadline=7 * SECOND,
    )
    assert last(asked) == {
        "at": 2.0,
        "what": "cancel_requested",
        "intent": "cancel",
        "mode": "cooperative",
        "reason": "enough",
        "by": "local/me",
        "deadline": 7.0,
    }
    assert last(asked, CancelEscalated(mode=CancelMode.INTERRUPT, at=7 * SECOND)) == {
        "at": 7.0,
        "what": "cancel_escalated",
        "mode": "interrupt",
        "deadline": None,
    }


def test_the_end_says_how() -> None:
    """With the error, if there is one."""
    failed = last(ended(Outcome.FAILED))
    assert failed == {"at": 3.0, "what": "ended", "outcome": "failed", "error": ERROR}
    assert last(ended(Outcome.SUCCEEDED))["error"] is None
