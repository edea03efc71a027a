"""The history of the golden run: every event that a run, a claim and a lineage can have."""

from __future__ import annotations

from typing import Any

from perdure.actors.claim import CLAIM_EVENTS, ClaimMade, ObjectClaimed
from perdure.actors.lineage import LINEAGE_EVENTS, AttemptTaken
from perdure.actors.run.events import (
    RUN_EVENTS,
    Activated,
    Answered,
    CancelEscalated,
    CancelRequested,
    ChildStarted,
    Deactivated,
    ExportAppended,
    LogBatch,
    LogLine,
    ProgressReported,
    QuestionAsked,
    ResultMarked,
    ResultRef,
    RunCreated,
    RunEnded,
    RunError,
    SleepBegun,
    StageChanged,
    StepFailed,
    StepRecorded,
)
from perdure.actors.run.status import CancelIntent, CancelMode, Outcome
from perdure.eventlog.registry import EventRegistry

SECOND = 1_000_000_000
RUN_ID = "0190a1b2-0000-7000-8000-000000000001"
HISTORY: list[Any] = [
    RunCreated(
        run_id=RUN_ID,
        plugin_id="demo",
        entry_id="count",
        args={"to": 3, "raw": b"\0\xff", "deep": [{"a": None}]},
        tenant="local",
        principal="local",
        root_run_id=RUN_ID,
        attempt=2,
        at=1 * SECOND,
        parent_run_id="0190a1b2-0000-7000-8000-000000000000",
        task_id="task",
        trace_id="0af7651916cd43dd8448eb211c80319c",
        session_id="s1",
        idempotency_key="key",
        timeout=60.5,
        started_by="0190a1b2-0000-7000-8000-00000000000f",
    ),
    Activated(host="h", epoch=1, plugin_version="1", at=2 * SECOND),
    Deactivated(epoch=1, at=3 * SECOND),
    Activated(host="i", epoch=2, plugin_version="1", at=4 * SECOND),
    Activated(host="j", epoch=3, plugin_version="1", suspects=1, at=5 * SECOND),
    StageChanged(stage="loading", message="the first part", at=5 * SECOND),
    ProgressReported(progress=0.4, message=None, at=6 * SECOND),
    ProgressReported(progress=0.5, message="both", stage="saving", at=6 * SECOND),
    ProgressReported(progress=0.6, message=None, keeps_message=True, at=6 * SECOND),
    LogBatch(
        lines=(LogLine(level="info", text="l\u00f6g", at=6 * SECOND),), dropped=7, at=7 * SECOND
    ),
    ExportAppended(
        number=1,
        type="text",
        fingerprint="f",
        occurrence=1,
        at=8 * SECOND,
        key="k",
        text="t",
        description="d",
        mime="text/plain",
        metadata={"a": 1},
    ),
    ExportAppended(
        number=2, type="binary", fingerprint="g", occurrence=1, at=9 * SECOND, binary=b"\1"
    ),
    ExportAppended(
        number=3, type="json", fingerprint="h", occurrence=2, at=9 * SECOND, json={"x": [1.5]}
    ),
    ResultMarked(items=(2,), at=10 * SECOND),
    ResultMarked(
        items=(1, 3),
        refs=(ResultRef(type="text", description="d"), ResultRef(type="json")),
        at=10 * SECOND,
    ),
    StepFailed(
        step="s",
        tries=1,
        error=RunError(code="E", message="m", details={"a": 1}, retriable=True),
        retry_at=11 * SECOND,
        at=10 * SECOND,
    ),
    StepRecorded(step="s", value={"rows": [1, 2]}, at=12 * SECOND),
    SleepBegun(step="z", until=14 * SECOND, at=13 * SECOND),
    QuestionAsked(step="q", question_id="q1", question={"text": "?"}, at=14 * SECOND),
    Answered(question_id="q1", answer=True, by="local/local", at=15 * SECOND),
    QuestionAsked(step="r", question_id="q2", question=None, at=16 * SECOND),
    ChildStarted(step="c", child_run_id="0190a1b2-0000-7000-8000-000000000002", at=17 * SECOND),
    CancelRequested(
        intent=CancelIntent.STOP,
        mode=CancelMode.COOPERATIVE,
        reason="enough",
        by="local/local",
        at=18 * SECOND,
    ),
    CancelEscalated(mode=CancelMode.FORCE, at=19 * SECOND),
    RunEnded(
        outcome=Outcome.CANCELED,
        error=RunError(code="CANCELED", message="enough"),
        result=(1, 3),
        at=20 * SECOND,
    ),
]
BESIDE: list[Any] = [
    ClaimMade(run_id=RUN_ID, request_hash="ab", scheme="sha256-cbor-1", window=5, at=SECOND),
    AttemptTaken(run_id=RUN_ID, attempt=2, at=SECOND),
    ObjectClaimed(
        kind="session",
        object_id="s-1",
        request_hash="ab",
        scheme="sha256-cbor-1",
        window=None,
        at=SECOND,
    ),
]
REGISTRIES: list[EventRegistry] = [RUN_EVENTS, CLAIM_EVENTS, LINEAGE_EVENTS]
