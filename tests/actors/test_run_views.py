from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.actors.run.core import INPUT_REQUIRED, RUN
from perdure.actors.run.events import (
    RUN_EVENTS,
    Activated,
    Answered,
    ExportAppended,
    LogBatch,
    LogLine,
    ProgressReported,
    QuestionAsked,
    ResultMarked,
    ResultRef,
    RunEnded,
    RunError,
    RunEvent,
    StageChanged,
)
from perdure.actors.run.item_id import export_item_id, item_number
from perdure.actors.run.status import Outcome, Status
from perdure.actors.run.views import (
    addition,
    delta,
    export_item,
    log_line,
    question_text,
    question_view,
    record,
)
from perdure.eventlog.record import Metadata, Record
from perdure.eventlog.testing import example_record
from tests.actors.test_run_core import CREATED, HISTORIES, SECOND, ended, export

RUN_ID = CREATED.run_id


def folded(*history: RunEvent) -> Any:
    """Fold a history."""
    return RUN.replay(history)


def test_a_new_record_has_every_field() -> None:
    """All fields of the protocol, null or default if nothing happened (R21, R23, R24, R25)."""
    assert record(folded(CREATED), 7 * SECOND) == {
        "run_id": RUN_ID,
        "plugin_id": "demo",
        "entry_id": "count",
        "status": "queued",
        "created_at": 0.0,
        "updated_at": 7.0,
        "task_id": None,
        "trace_id": None,
        "idempotency_key": None,
        "root_run_id": RUN_ID,
        "parent_run_id": None,
        "attempt": 1,
        "started_at": None,
        "finished_at": None,
        "progress": None,
        "cancel_requested": False,
        "cancel_reason": None,
        "cancel_requested_at": None,
        "error": None,
        "result_refs": [],
        "message": None,
        "stage": None,
        "session_id": None,
        "deadline": None,
        "questions": [],
        "started_by": None,
        "children": 0,
    }


@pytest.mark.parametrize("status", Status)
def test_a_record_shows_its_status(status: Status) -> None:
    """Exactly one status, by its name (R1)."""
    assert record(folded(*HISTORIES[status]), 0)["status"] == status.value


def test_a_record_shows_what_happened() -> None:
    """Times, cancel request, error and open questions are shown (R3, R74, R75, R108)."""
    asked = QuestionAsked(step="s", question_id="q", question=1, at=0)
    running = record(folded(*HISTORIES[Status.RUNNING], asked), 0)
    assert (running["started_at"], running["deadline"], running["questions"]) == (1.0, 61.0, ["q"])
    canceling = record(folded(*HISTORIES[Status.CANCEL_REQUESTED]), 0)
    assert canceling["cancel_requested"]
    assert (canceling["cancel_reason"], canceling["cancel_requested_at"]) == ("enough", 2.0)
    failed = record(folded(*HISTORIES[Status.FAILED]), 0)
    assert failed["error"] == {
        "code": "PLUGIN_ERROR",
        "message": "boom",
        "details": None,
        "retriable": False,
    }
    assert failed["finished_at"] == 3.0


def test_result_refs_appear_with_the_end() -> None:
    """Marked items are not a result before the run has ended (R26, R30)."""
    marked = ResultMarked(items=(1,), at=0)
    history = (*HISTORIES[Status.RUNNING], export(1), marked)
    over = ended(Outcome.SUCCEEDED)
    over = type(over)(outcome=over.outcome, error=None, result=(1,), at=over.at)
    assert folded(*history).marked == (1,)
    assert record(folded(*history), 0)["result_refs"] == []
    assert record(folded(*history, over), 0)["result_refs"] == [{"export_item_id": f"{RUN_ID}.1"}]


def test_a_result_ref_says_what_its_item_is() -> None:
    """Its type, and its description if it has one; a run of an earlier release has only the id."""
    items = (ResultRef(type="json"), ResultRef(type="text", description="d"))
    marked = ResultMarked(items=(2, 1), refs=items, at=0)
    over = RunEnded(outcome=Outcome.SUCCEEDED, error=None, result=(2, 1), at=0)
    run = folded(*HISTORIES[Status.RUNNING], export(1), export(2), marked, over)
    assert record(run, 0)["result_refs"] == [
        {"export_item_id": f"{RUN_ID}.2", "type": "json"},
        {"export_item_id": f"{RUN_ID}.1", "type": "text", "description": "d"},
    ]


def test_times_are_epoch_seconds_to_the_microsecond() -> None:
    """A float that survives JSON unchanged (R22)."""
    shown = record(folded(CREATED), 1_767_225_600_123_456_789)["updated_at"]
    assert shown == 1767225600.123456
    assert json.loads(json.dumps(shown)) == shown


def records(*history: RunEvent) -> list[Record]:
    """The records that a history makes."""
    run, made = None, []
    for number, event in enumerate(history, 1):
        after = RUN.evolve(run, event)
        new = RUN_EVENTS.encode(
            event,
            event_id=number.to_bytes(16, "big"),
            event_time=event.at,
            metadata=Metadata(fields=RUN.describe(run, after)),
        )
        example = example_record(number, f"run/{RUN_ID}", version=number)
        made.append(
            example._replace(name=new.name, body=new.body, meta=new.meta, commit_time=SECOND)
        )
        run = after
    return made


PROGRESS = ProgressReported(progress=0.4, message="\u4e16" * 4096, at=0)
STAGE = StageChanged(stage="\u754c" * 64, message="\u4e16" * 4096, at=0)


def test_a_delta_is_small_and_says_add_or_change() -> None:
    """It has what everybody needs and can be sent to everybody (R36, R37)."""
    changes = [delta(r) for r in records(*HISTORIES[Status.RUNNING], PROGRESS, STAGE)]
    assert [change and change["op"] for change in changes] == ["add", "change", "change", "change"]
    for change in changes:
        assert change is not None
        assert {"op", "run_id", "status", "progress", "updated_at"} <= change.keys()
        assert change["run_id"] == RUN_ID
        assert change["updated_at"] == 1.0
        assert len(json.dumps(change)) < 2048
    assert [change and change["status"] for change in changes] == ["queued", *["running"] * 3]
    assert [change and change["progress"] for change in changes] == [None, None, 0.4, 0.4]
    assert [change and change.get("stage") for change in changes] == [None, None, None, STAGE.stage]


def test_what_nobody_sees_makes_no_delta() -> None:
    """Steps, log lines and further activations change nothing that is shown."""
    again = Activated(host="h", epoch=2, plugin_version="1", at=0)
    lines = LogBatch(lines=(), dropped=0, at=0)
    made = records(*HISTORIES[Status.RUNNING], lines, again, export(1))
    assert [delta(r) for r in made[2:]] == [None, None, None]


def test_an_addition_shows_a_run_as_it_stands() -> None:
    """Whoever begins to follow sees what the last deltas would have told."""
    run = folded(*HISTORIES[Status.RUNNING], PROGRESS, STAGE)
    shown = addition(run, SECOND)
    last = delta(records(*HISTORIES[Status.RUNNING], PROGRESS, STAGE)[-1])
    assert last is not None
    assert shown == last | {"op": "add"}
    assert addition(folded(CREATED), 0).keys() == {
        "op",
        "run_id",
        "status",
        "progress",
        "updated_at",
    }


def test_an_export_item_shows_its_own_content() -> None:
    """It names its run and itself; bytes leave as base64 (R45, R50)."""
    item = ExportAppended(
        number=3,
        type="binary",
        binary=b"\x00\xff",
        fingerprint="f",
        occurrence=1,
        description="d",
        mime="application/x",
        metadata={"a": 1},
        at=SECOND,
    )
    assert export_item(RUN_ID, item) == {
        "export_item_id": f"{RUN_ID}.3",
        "run_id": RUN_ID,
        "type": "binary",
        "created_at": 1.0,
        "description": "d",
        "binary": "AP8=",
        "mime": "application/x",
        "metadata": {"a": 1},
    }


@pytest.mark.parametrize(
    ("item_id", "named"),
    [
        ("r1.1", ("r1", 1)),
        ("a.b.23", ("a.b", 23)),
        (f"r1.{'9' * 18}", ("r1", 10**18 - 1)),
        (f"r1.{'9' * 19}", None),  # no run comes near
        (export_item_id(RUN_ID, 10), (RUN_ID, 10)),
        ("1", None),
        (".1", None),
        ("r1.", None),
        ("r1.x", None),
        ("r1.-1", None),
        ("r1.0", None),
        ("r1.01", None),
        ("r1.\u0661", None),  # a digit, but not one of ours
    ],
)
def test_an_items_id_names_its_run_and_its_number(
    item_id: str, named: tuple[str, int] | None
) -> None:
    """Each item has one id; anything else is none."""
    assert item_number(item_id) == named


def test_a_report_shows_the_beginning_of_its_message() -> None:
    """And none when there is none; a stage or a message that is no news is not there."""
    quiet = ProgressReported(progress=0.5, message=None, at=0)
    kept = ProgressReported(progress=0.6, message=None, keeps_message=True, stage="s", at=0)
    history = records(*HISTORIES[Status.RUNNING], PROGRESS, quiet, kept)
    long, none, unchanged = (delta(r) for r in history[2:])
    assert long is not None
    assert long["message"] == "\u4e16" * 159 + "\u2026"
    assert "stage" not in long
    assert none is not None
    assert none["message"] is None
    assert unchanged is not None
    assert (unchanged["stage"], "message" in unchanged) == ("s", False)


def test_an_error_can_be_retriable() -> None:
    """Whether trying again makes sense is part of the error."""
    lost = RunError(code="HOST_LOST", message="m", details={"a": 1}, retriable=True)
    run = folded(*HISTORIES[Status.RUNNING], ended(Outcome.FAILED, lost))
    shown = record(run, 0)["error"]
    assert shown == {"code": "HOST_LOST", "message": "m", "details": {"a": 1}, "retriable": True}


def test_a_run_that_has_ended_asks_nothing() -> None:
    """Nobody is shown a question that cannot be answered any more."""
    asked = QuestionAsked(step="s", question_id="q", question=1, at=0)
    history = (*HISTORIES[Status.RUNNING], asked)
    assert record(folded(*history), 0)["questions"] == ["q"]
    assert record(folded(*history, ended(Outcome.SUCCEEDED)), 0)["questions"] == []


def test_the_last_answer_is_a_change_of_stage() -> None:
    """Whoever follows sees that the run waits no more, and not sooner."""
    asked = [QuestionAsked(step=q, question_id=q, question=1, at=0) for q in "pq"]
    waits = StageChanged(stage=INPUT_REQUIRED, message=None, at=0)
    answered = [Answered(question_id=q, answer=1, by="b", at=0) for q in "pq"]
    history = records(*HISTORIES[Status.RUNNING], *asked, waits, *answered)
    *_, first, second, _, one, other = map(delta, history)
    assert (first, second, one) == (None, None, None)
    assert other == {
        "op": "change",
        "run_id": RUN_ID,
        "status": "running",
        "progress": None,
        "updated_at": 1.0,
        "stage": None,
        "message": None,
    }


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Deploy?", "Deploy?"),
        ({"text": "Deploy?", "message": "no"}, "Deploy?"),
        ({"message": "Deploy?"}, "Deploy?"),
        ({"question": "Deploy?", "choices": [1, 2]}, "Deploy?"),
        ({"text": "", "question": "Deploy?"}, "Deploy?"),
        ({"text": 5}, None),
        ({"choices": [1, 2]}, None),
        ("", None),
        ([1], None),
        (None, None),
    ],
)
def test_a_question_has_a_text_if_people_can_read_one(question: Any, text: str | None) -> None:
    """Itself, or the text that a mapping has under a usual name."""
    assert question_text(question) == text


def test_an_answer_leaves_another_stage_as_it_is() -> None:
    """A run that has gone on to something else while it waited is still there."""
    asked = QuestionAsked(step="s", question_id="q", question=1, at=0)
    busy = StageChanged(stage="loading", message=None, at=0)
    answered = Answered(question_id="q", answer=1, by="b", at=0)
    *_, answer = records(*HISTORIES[Status.RUNNING], asked, busy, answered)
    assert delta(answer) is None


def test_a_question_shows_what_is_asked_and_since_when() -> None:
    """With the id that its answer names."""
    asked = QuestionAsked(step="s", question_id="q", question={"text": "which?"}, at=2 * SECOND)
    shown = {"question_id": "q", "question": {"text": "which?"}, "asked_at": 2.0}
    assert question_view(asked) == shown


def test_a_line_shows_whose_it_is() -> None:
    """Its run and its trace, its time, level and text."""
    created = replace(CREATED, trace_id="t1")
    assert log_line(created, LogLine(level="warning", text="late", at=2 * SECOND)) == {
        "run_id": RUN_ID,
        "trace_id": "t1",
        "at": 2.0,
        "level": "warning",
        "text": "late",
    }
