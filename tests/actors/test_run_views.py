from __future__ import annotations

import json
from typing import Any

import pytest

from actors.run.core import RUN
from actors.run.events import (
    ExportAppended,
    ProgressReported,
    QuestionAsked,
    RunError,
    RunEvent,
    StageChanged,
)
from actors.run.status import Outcome, Status
from actors.run.views import delta, export_item, record
from tests.actors.test_run_core import CREATED, HISTORIES, SECOND, ended, export

RUN_ID = CREATED.run_id


def folded(*history: RunEvent) -> Any:
    """Fold a history."""
    return RUN.replay(history)


def test_a_new_record_has_every_field() -> None:
    """All that the protocol names is there, null or default where nothing happened (R21 to R25)."""
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
    history = (*HISTORIES[Status.RUNNING], export(1))
    over = ended(Outcome.SUCCEEDED)
    over = type(over)(outcome=over.outcome, error=None, result=(1,), at=over.at)
    assert record(folded(*history), 0)["result_refs"] == []
    assert record(folded(*history, over), 0)["result_refs"] == [{"export_item_id": f"{RUN_ID}.1"}]


def test_times_are_epoch_seconds_to_the_microsecond() -> None:
    """A float that survives JSON unchanged (R22)."""
    shown = record(folded(CREATED), 1_767_225_600_123_456_789)["updated_at"]
    assert shown == 1767225600.123456
    assert json.loads(json.dumps(shown)) == shown


def test_a_delta_is_small_and_says_add_or_change() -> None:
    """Everybody can be sent it (R36, R37)."""
    progress = ProgressReported(progress=0.4, message="\u4e16" * 4096, at=0)
    stage = StageChanged(stage="\u754c" * 64, message="\u4e16" * 4096, at=0)
    run = folded(*HISTORIES[Status.RUNNING], progress, stage)
    change = delta(run, SECOND, is_new=False)
    assert (change["op"], change["run_id"], change["status"]) == ("change", RUN_ID, "running")
    assert (change["progress"], change["updated_at"]) == (0.4, 1.0)
    assert len(json.dumps(change)) < 2048
    assert delta(folded(CREATED), 0, is_new=True)["op"] == "add"


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


def test_an_error_can_be_retriable() -> None:
    """Whether trying again makes sense is part of the error."""
    lost = RunError(code="HOST_LOST", message="m", details={"a": 1}, retriable=True)
    run = folded(*HISTORIES[Status.RUNNING], ended(Outcome.FAILED, lost))
    shown = record(run, 0)["error"]
    assert shown == {"code": "HOST_LOST", "message": "m", "details": {"a": 1}, "retriable": True}
