"""What earlier activations of a run have recorded, for the one that goes on from there.

The same stream as the run's own state, folded for another purpose: an entry that is called again
finds its steps, sleeps, questions and children by name, and its exports by key or by being the n-th
equal one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, Any, Final

from perdure.actors.run.events import (
    Answered,
    ChildStarted,
    ExportAppended,
    ProgressReported,
    QuestionAsked,
    ResultRef,
    SleepBegun,
    StageChanged,
    StepFailed,
    StepRecorded,
)
from perdure.actors.run.report_bounds import shortened
from perdure.eventlog import cbor

if TYPE_CHECKING:
    from perdure.actors.run.events import Report, RunEvent

NOT_RECORDED: Final = object()
_DESCRIPTION: Final = 160  # characters of an item's description in a reference to it


@dataclass(slots=True)
class History:
    """Recorded facts by the name of their step. Filled by ``add`` in the order of the stream."""

    values: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, StepFailed] = field(default_factory=dict)
    sleeps: dict[str, int] = field(default_factory=dict)
    questions: dict[str, str] = field(default_factory=dict)  # step -> question id
    answers: dict[str, Any] = field(default_factory=dict)  # question id -> answer
    children: dict[str, str] = field(default_factory=dict)  # step -> run id
    keyed: dict[str, int] = field(default_factory=dict)  # export key -> number
    equal: dict[tuple[str, int], int] = field(default_factory=dict)  # n-th equal one -> number
    refs: dict[int, ResultRef] = field(default_factory=dict)  # what each export is, by its number
    exports: int = 0
    last: str | None = None  # the step recorded last
    progress: float = -inf  # the furthest that was reported
    stages: set[str] = field(default_factory=set)

    def add(self, event: RunEvent) -> None:
        """Take an event in."""
        match event:
            case StepRecorded(step=step, value=value):
                self.values[step] = value
                self.last = step
            case StepFailed(step=step):
                self.failures[step] = event
            case SleepBegun(step=step, until=until):
                self.sleeps[step] = until
                self.last = step
            case QuestionAsked(step=step, question_id=question_id):
                self.questions[step] = question_id
                self.last = step
            case Answered(question_id=question_id, answer=answer):
                self.answers[question_id] = answer
            case ChildStarted(step=step, child_run_id=child):
                self.children[step] = child
                self.last = step
            case ExportAppended():
                self._add_export(event)
            case ProgressReported() | StageChanged():
                self._add_report(event)
            case _:
                pass

    def has(self, step: str) -> bool:
        """Tell whether a step has its outcome, a sleep its end, a question its id, a child its."""
        return (
            step in self.values
            or step in self.sleeps
            or step in self.questions
            or step in self.children
        )

    def _add_report(self, report: Report) -> None:
        if report.stage is not None:
            self.stages.add(report.stage)
        if isinstance(report, ProgressReported):
            self.progress = max(self.progress, report.progress)

    def _add_export(self, event: ExportAppended) -> None:
        self.exports = event.number
        self.refs[event.number] = ref_of(event)
        if event.key is not None:
            self.keyed[event.key] = event.number
        else:
            self.equal[event.fingerprint, event.occurrence] = event.number


def ref_of(export: ExportAppended) -> ResultRef:
    """Say what an item is, in few words."""
    about = export.description
    shown = None if about is None else shortened(about, _DESCRIPTION)
    return ResultRef(type=export.type, description=shown)


def fingerprint(kind: str, content: Any) -> str:  # noqa: ANN401 - any content of an export
    """Tell equal exports from different ones by type and content."""
    return blake2b(cbor.encode([kind, content]), digest_size=12).hexdigest()
