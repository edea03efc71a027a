"""What people and programs see of a run: the record, the delta, the export item.

Each is a pure function of what was folded, so that the past looks as it did then. Times leave as
epoch seconds with microseconds, as the Run protocol has them.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final, Literal, NotRequired, TypedDict, cast

from perdure.actors.run.events import (
    RUN_EVENTS,
    ProgressReported,
    RunCreated,
    StageChanged,
)
from perdure.actors.run.item_id import export_item_id
from perdure.actors.run.output import EXPORT_FIELDS
from perdure.actors.run.report_bounds import shortened
from perdure.actors.run.stream import run_id_of

if TYPE_CHECKING:
    from perdure.actors.run.core import Run
    from perdure.actors.run.events import ExportAppended, LogLine, QuestionAsked, Report, RunError
    from perdure.eventlog.record import Record

_MICROSECOND: Final = 1000
_TEXTS: Final = ("text", "message", "question")  # where a question that is a mapping has its text
REPORTS: Final = frozenset({ProgressReported.event_name, StageChanged.event_name})
_DELTA_MESSAGE: Final = 160  # the record has all of it; a delta stays under 2 KiB in any script


class ErrorView(TypedDict):
    """An error on the wire."""

    code: str
    message: str
    details: dict[str, Any] | None
    retriable: bool


class RunRecord(TypedDict):
    """The authoritative record of a run (Run protocol, section 5.1, and ours after it)."""

    run_id: str
    plugin_id: str
    entry_id: str
    status: str
    created_at: float
    updated_at: float
    task_id: str | None
    trace_id: str | None
    idempotency_key: str | None
    root_run_id: str
    parent_run_id: str | None
    attempt: int
    started_at: float | None
    finished_at: float | None
    progress: float | None
    cancel_requested: bool
    cancel_reason: str | None
    cancel_requested_at: float | None
    error: ErrorView | None
    result_refs: list[ExportRef]
    message: str | None
    stage: str | None
    session_id: str | None
    deadline: float | None
    questions: list[str]
    started_by: str | None  # the run whose entry started it
    children: int  # how many it has started itself


class ExportRef(TypedDict):
    """A reference to an export item of the same run, and what the item is.

    ``description`` is there if the item has one. Runs of earlier releases have only the id.
    """

    export_item_id: str
    type: NotRequired[str]
    description: NotRequired[str]


class RunDelta(TypedDict):
    """A change of a run, small enough to send to everybody.

    ``stage`` and ``message`` are there when they are news.
    """

    op: Literal["add", "change"]
    run_id: str
    status: str
    progress: float | None
    updated_at: float
    stage: NotRequired[str | None]
    message: NotRequired[str | None]


class ExportItem(TypedDict):
    """An output of a run. Of the content fields it has the one of its type."""

    export_item_id: str
    run_id: str
    type: str
    created_at: float
    description: str | None
    mime: str | None
    metadata: dict[str, Any]
    text: NotRequired[str]
    url: NotRequired[str]
    binary_url: NotRequired[str]
    binary: NotRequired[str]
    json: NotRequired[Any]


class QuestionView(TypedDict):
    """A question of a run that waits for its answer."""

    question_id: str
    question: Any
    asked_at: float


class LogLineView(TypedDict):
    """A line that an entry logged, and of which run it is."""

    run_id: str
    trace_id: str | None
    level: str
    text: str
    at: float


def seconds(nanoseconds: int) -> float:
    """Give a time as epoch seconds, to the microsecond."""
    return nanoseconds // _MICROSECOND / 1_000_000


def maybe_seconds(nanoseconds: int | None) -> float | None:
    """Give a time that there may be as ``seconds`` does."""
    return None if nanoseconds is None else seconds(nanoseconds)


def record(run: Run, updated_at: int) -> RunRecord:
    """Give the record of a run whose newest event was committed at ``updated_at``."""
    created, cancel = run.created, run.cancel
    return {
        "run_id": created.run_id,
        "plugin_id": created.plugin_id,
        "entry_id": created.entry_id,
        "status": run.status.value,
        "created_at": seconds(created.at),
        "updated_at": seconds(updated_at),
        "task_id": created.task_id,
        "trace_id": created.trace_id,
        "idempotency_key": created.idempotency_key,
        "root_run_id": created.root_run_id,
        "parent_run_id": created.parent_run_id,
        "attempt": created.attempt,
        "started_at": maybe_seconds(run.started_at),
        "finished_at": maybe_seconds(run.finished_at),
        "progress": run.progress,
        "cancel_requested": cancel is not None,
        "cancel_reason": cancel.reason if cancel else None,
        "cancel_requested_at": seconds(cancel.at) if cancel else None,
        "error": error_view(run.error),
        "result_refs": _result_refs(run),
        "message": run.message,
        "stage": run.stage,
        "session_id": created.session_id,
        "deadline": maybe_seconds(run.deadline),
        "questions": sorted(run.asking),
        "started_by": created.started_by,
        "children": len(run.children),
    }


def _result_refs(run: Run) -> list[ExportRef]:
    refs: list[ExportRef] = [
        {"export_item_id": export_item_id(run.created.run_id, number)} for number in run.result
    ]
    for ref, known in zip(refs, run.marked_refs, strict=False):  # of earlier releases nothing is
        ref["type"] = known.type
        if known.description is not None:
            ref["description"] = known.description
    return refs


def error_view(error: RunError | None) -> ErrorView | None:
    """Give an error as the wire has it."""
    if error is None:
        return None
    return {
        "code": error.code,
        "message": error.message,
        "details": error.details,
        "retriable": error.retriable,
    }


def delta(record: Record) -> RunDelta | None:
    """Give the change that a record of a run brings, if it brings one that others see."""
    fields = record.metadata.fields
    is_report = record.name in REPORTS
    is_over = bool(fields.get("stage_over"))
    if not is_report and not is_over and not fields.get("changed"):
        return None
    change: RunDelta = {
        "op": "add" if record.name == RunCreated.event_name else "change",
        "run_id": run_id_of(record.stream),
        "status": str(fields["status"]),
        "progress": cast("float | None", fields.get("progress")),
        "updated_at": seconds(record.commit_time),
    }
    if is_report:
        _tell_report(change, RUN_EVENTS.decode(record))
    elif is_over:
        change["stage"] = change["message"] = None
    return change


def _tell_report(change: RunDelta, report: Report) -> None:
    """Put the stage and the message of a report into a delta, as far as they are news."""
    if report.stage is not None:
        change["stage"] = report.stage
    if isinstance(report, StageChanged) or not report.keeps_message:
        change["message"] = _short(report.message)


def addition(run: Run, updated_at: int) -> RunDelta:
    """Give a run that exists already to somebody who has not heard of it."""
    change: RunDelta = {
        "op": "add",
        "run_id": run.created.run_id,
        "status": run.status.value,
        "progress": run.progress,
        "updated_at": seconds(updated_at),
    }
    if run.stage is not None:
        change["stage"] = run.stage
    if run.message is not None:
        change["message"] = _short(run.message)
    return change


def export_item(run_id: str, export: ExportAppended) -> ExportItem:
    """Give an export item as the wire has it: its own content field and what describes it."""
    content = getattr(export, EXPORT_FIELDS[export.type])
    if isinstance(content, bytes):
        content = b64encode(content).decode("ascii")
    item = {
        "export_item_id": export_item_id(run_id, export.number),
        "run_id": run_id,
        "type": export.type,
        "created_at": seconds(export.at),
        "description": export.description,
        "mime": export.mime,
        "metadata": export.metadata or {},
        EXPORT_FIELDS[export.type]: content,
    }
    return cast("ExportItem", item)


def question_text(question: Any) -> str | None:  # noqa: ANN401 - whatever was asked
    """Give what people can read of a question: itself if it is text, or the text that it has."""
    if isinstance(question, dict):
        question = next((question[name] for name in _TEXTS if question.get(name)), None)
    return question if isinstance(question, str) and question else None


def question_view(asked: QuestionAsked) -> QuestionView:
    """Give an open question as the wire has it."""
    return {
        "question_id": asked.question_id,
        "question": asked.question,
        "asked_at": seconds(asked.at),
    }


def log_line(created: RunCreated, line: LogLine) -> LogLineView:
    """Give a logged line as the wire has it."""
    return {
        "run_id": created.run_id,
        "trace_id": created.trace_id,
        "at": seconds(line.at),
        "level": line.level,
        "text": line.text,
    }


def _short(message: str | None) -> str | None:
    return None if message is None else shortened(message, _DELTA_MESSAGE)
