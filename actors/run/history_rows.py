"""What happened inside a run, as rows: one for each activation, step, wait, answer and export.

A row is a pure function of an event and of the run before it, so that the history reads the same at
any later time, and can be read from any place on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NotRequired, TypedDict, cast

import msgspec

from perdure.actors.run.events import (
    Activated,
    Answered,
    CancelEscalated,
    CancelRequested,
    ChildStarted,
    Deactivated,
    ExportAppended,
    QuestionAsked,
    RunEnded,
    RunError,
    SleepBegun,
    StepFailed,
    StepRecorded,
)
from perdure.actors.run.item_id import export_item_id
from perdure.actors.run.preview import PREVIEW, preview
from perdure.actors.run.views import (
    ErrorView,
    error_view,
    maybe_seconds,
    question_text,
    seconds,
)

if TYPE_CHECKING:
    from perdure.actors.run.core import Run
    from perdure.actors.run.events import RunEvent

Fields = Mapping[str, Any]

What = Literal[
    "activated",
    "deactivated",
    "step_failed",
    "step_recorded",
    "sleep_begun",
    "question_asked",
    "answered",
    "child_started",
    "exported",
    "cancel_requested",
    "cancel_escalated",
    "ended",
]


class HistoryRow(TypedDict):
    """Something that happened inside a run. ``what`` says which other fields there are.

    ``how`` an activation is over: its host drained, was lost, or the run ended. Of a value there is
    the ``size`` as JSON in bytes and a ``preview``, the beginning of that.
    """

    at: float
    what: What
    epoch: NotRequired[int]  # of an activation
    host: NotRequired[str]
    plugin_version: NotRequired[str]
    how: NotRequired[Literal["drained", "lost", "ended"]]
    step: NotRequired[str]
    tries: NotRequired[int]  # how many there were so far
    retry_at: NotRequired[float | None]
    size: NotRequired[int]
    preview: NotRequired[str]
    until: NotRequired[float]
    question_id: NotRequired[str]
    by: NotRequired[str]
    child_run_id: NotRequired[str]
    export_item_id: NotRequired[str]
    type: NotRequired[str]
    description: NotRequired[str | None]
    intent: NotRequired[str]
    mode: NotRequired[str]
    reason: NotRequired[str | None]
    deadline: NotRequired[float | None]  # when the run is asked in a harder way
    outcome: NotRequired[str]
    error: NotRequired[ErrorView | None]


def history_rows(run: Run, event: RunEvent) -> tuple[HistoryRow, ...]:
    """Give what an event adds to the history of a run that was so before it."""
    rows: list[HistoryRow] = []
    at, how = seconds(event.at), _end_of_activation(event)
    if run.active and how is not None:
        rows.append({"at": at, "what": "deactivated", "epoch": run.epoch, "how": how})
    if type(event) in _FIELDS:
        what, fields = _FIELDS[type(event)]
        rows.append(cast("HistoryRow", {"at": at, "what": what, **fields(run, event)}))
    return tuple(rows)


def _end_of_activation(event: RunEvent) -> Literal["drained", "lost", "ended"] | None:
    """Tell how an activation that is in charge is over by an event, if it is."""
    match event:
        case Deactivated():
            return "drained"
        case Activated() | RunEnded(error=RunError(code="HOST_LOST")):
            return "lost"
        case RunEnded():
            return "ended"
        case _:
            return None


def _sized(value: Any) -> Fields:  # noqa: ANN401 - any value of a step, question or answer
    """Give the size of a value as JSON, and its beginning."""
    text = msgspec.json.encode(value)
    return {"size": len(text), "preview": preview(text)}


def _asked(event: QuestionAsked) -> Fields:
    """Give what a question shows: its text, if it has one."""
    shown, text = _sized(event.question), question_text(event.question)
    return shown if text is None else {**shown, "preview": text[:PREVIEW]}


def _request(event: CancelRequested | CancelEscalated) -> Fields:
    return {"mode": event.mode.name.lower(), "deadline": maybe_seconds(event.deadline)}


_FIELDS: Final[Mapping[type[RunEvent], tuple[What, Callable[[Run, Any], Fields]]]] = {
    Activated: (
        "activated",
        lambda _, e: {"epoch": e.epoch, "host": e.host, "plugin_version": e.plugin_version},
    ),
    StepFailed: (
        "step_failed",
        lambda _, e: {
            "step": e.step,
            "tries": e.tries,
            "error": error_view(e.error),
            "retry_at": maybe_seconds(e.retry_at),
        },
    ),
    StepRecorded: ("step_recorded", lambda _, e: {"step": e.step, **_sized(e.value)}),
    SleepBegun: ("sleep_begun", lambda _, e: {"step": e.step, "until": seconds(e.until)}),
    QuestionAsked: (
        "question_asked",
        lambda _, e: {"step": e.step, "question_id": e.question_id, **_asked(e)},
    ),
    Answered: (
        "answered",
        lambda _, e: {"question_id": e.question_id, "by": e.by, **_sized(e.answer)},
    ),
    ChildStarted: (
        "child_started",
        lambda _, e: {"step": e.step, "child_run_id": e.child_run_id},
    ),
    ExportAppended: (
        "exported",
        lambda run, e: {
            "export_item_id": export_item_id(run.created.run_id, e.number),
            "type": e.type,
            "description": e.description,
        },
    ),
    CancelRequested: (
        "cancel_requested",
        lambda _, e: {"intent": e.intent.value, "reason": e.reason, "by": e.by, **_request(e)},
    ),
    CancelEscalated: ("cancel_escalated", lambda _, e: _request(e)),
    RunEnded: (
        "ended",
        lambda _, e: {"outcome": e.outcome.value, "error": error_view(e.error)},
    ),
}
HISTORY_NAMES: Final = frozenset(  # events of other names add nothing
    event.event_name for event in (*_FIELDS, Deactivated)
)
