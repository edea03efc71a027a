"""What can happen to a run, as the log stores it for ever.

Names and shapes of these events never change: add a new one, or bring old ones forward with an
upcaster. Times are UTC nanoseconds and come with the command; ids are minted outside.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from msgspec import Struct

from perdure.actors.run.status import CancelIntent, CancelMode, Outcome
from perdure.eventlog.registry import EventRegistry

RUN_EVENTS: Final = EventRegistry()


class RunError(Struct, frozen=True, kw_only=True):
    """Why a run did not succeed. ``retriable`` says that trying again makes sense."""

    code: str
    message: str
    details: dict[str, Any] | None = None
    retriable: bool = False


@RUN_EVENTS.register
class RunCreated(Struct, frozen=True, kw_only=True):
    """A run was accepted and waits for its turn."""

    event_name: ClassVar[str] = "run.created"
    run_id: str
    plugin_id: str
    entry_id: str
    args: dict[str, Any]
    tenant: str
    principal: str
    root_run_id: str
    attempt: int
    at: int
    parent_run_id: str | None = None
    task_id: str | None = None
    trace_id: str | None = None
    session_id: str | None = None
    idempotency_key: str | None = None
    timeout: float | None = None  # seconds, counted from the first activation
    started_by: str | None = None  # the run whose entry started it, and with which it is canceled


@RUN_EVENTS.register
class Activated(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host is about to call the entry. The first activation is the start of the run."""

    event_name: ClassVar[str] = "run.activated"
    host: str
    epoch: int
    plugin_version: str
    at: int
    suspects: int = 0  # runs that may have brought down the host before, if this is one of them


@RUN_EVENTS.register
class Deactivated(Struct, frozen=True, kw_only=True):
    """A host lets go of a run that has not ended: it drains, and is not lost."""

    event_name: ClassVar[str] = "run.deactivated"
    epoch: int
    at: int


@RUN_EVENTS.register
class ProgressReported(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the work is, from 0.0 to 1.0; with a stage, also what it is doing now."""

    event_name: ClassVar[str] = "run.progress-reported"
    progress: float
    message: str | None
    at: int
    stage: str | None = None  # if it has changed as well
    keeps_message: bool = False  # the message before stays, and there is none here


@RUN_EVENTS.register
class StageChanged(Struct, frozen=True, kw_only=True):
    """What the work is doing now. A label for people, not a status."""

    event_name: ClassVar[str] = "run.stage-changed"
    stage: str
    message: str | None
    at: int


class LogLine(Struct, frozen=True, kw_only=True):
    """One line that the entry logged."""

    level: str
    text: str
    at: int


@RUN_EVENTS.register
class LogBatch(Struct, frozen=True, kw_only=True):
    """Lines that the entry logged, and how many more were dropped before them."""

    event_name: ClassVar[str] = "run.log-batch"
    lines: tuple[LogLine, ...]
    dropped: int
    at: int


@RUN_EVENTS.register
class ExportAppended(Struct, frozen=True, kw_only=True):
    """An output for people. Items of a run are numbered 1, 2, 3 ... and never change.

    ``fingerprint`` and ``occurrence`` tell the n-th equal item of an activation, so that the same
    export made again after a crash is recognised.
    """

    event_name: ClassVar[str] = "run.export-appended"
    number: int
    type: str
    fingerprint: str
    occurrence: int
    at: int
    key: str | None = None
    text: str | None = None
    url: str | None = None
    binary_url: str | None = None
    binary: bytes | None = None
    json: Any = None
    description: str | None = None
    mime: str | None = None
    metadata: dict[str, Any] | None = None


class ResultRef(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an item of the result is."""

    type: str
    description: str | None = None


@RUN_EVENTS.register
class ResultMarked(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """These items, by number, are the result: the newest marking counts."""

    event_name: ClassVar[str] = "run.result-marked"
    items: tuple[int, ...]
    at: int
    refs: tuple[ResultRef, ...] = ()  # what each of them is; earlier releases did not say


@RUN_EVENTS.register
class StepRecorded(Struct, frozen=True, kw_only=True):
    """A durable step has its result, for this and every later activation."""

    event_name: ClassVar[str] = "run.step-recorded"
    step: str
    value: Any
    at: int


@RUN_EVENTS.register
class StepFailed(Struct, frozen=True, kw_only=True):
    """A try of a step failed; it will be tried again at ``retry_at``, or (None) not at all."""

    event_name: ClassVar[str] = "run.step-failed"
    step: str
    tries: int
    error: RunError
    retry_at: int | None
    at: int


@RUN_EVENTS.register
class SleepBegun(Struct, frozen=True, kw_only=True):
    """A durable sleep has its end."""

    event_name: ClassVar[str] = "run.sleep-begun"
    step: str
    until: int
    at: int


@RUN_EVENTS.register
class QuestionAsked(Struct, frozen=True, kw_only=True):
    """The run waits for an answer from outside."""

    event_name: ClassVar[str] = "run.question-asked"
    step: str
    question_id: str
    question: Any
    at: int


@RUN_EVENTS.register
class Answered(Struct, frozen=True, kw_only=True):
    """A question has its answer."""

    event_name: ClassVar[str] = "run.answered"
    question_id: str
    answer: Any
    by: str
    at: int


@RUN_EVENTS.register
class ChildStarted(Struct, frozen=True, kw_only=True):
    """The run started another run, created in the same append."""

    event_name: ClassVar[str] = "run.child-started"
    step: str
    child_run_id: str
    at: int


@RUN_EVENTS.register
class CancelRequested(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody, or the clock, asked the run to end."""

    event_name: ClassVar[str] = "run.cancel-requested"
    intent: CancelIntent
    mode: CancelMode
    reason: str | None
    by: str
    at: int
    deadline: int | None = None  # when a harder way follows, if the run has not ended by then


@RUN_EVENTS.register
class CancelEscalated(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The run is asked to end in a harder way."""

    event_name: ClassVar[str] = "run.cancel-escalated"
    mode: CancelMode
    at: int
    deadline: int | None = None  # as above; after the hardest way the run ends without its entry


@RUN_EVENTS.register
class RunEnded(Struct, frozen=True, kw_only=True):
    """The one terminal event: outcome, error and result in one fact. It seals the stream."""

    event_name: ClassVar[str] = "run.ended"
    outcome: Outcome
    error: RunError | None
    result: tuple[int, ...]
    at: int


Report = ProgressReported | StageChanged

# What an execution puts into the log while it works.
Output = (
    Report
    | LogBatch
    | ExportAppended
    | ResultMarked
    | StepRecorded
    | StepFailed
    | SleepBegun
    | QuestionAsked
    | ChildStarted
)

RunEvent = (
    RunCreated
    | Activated
    | Deactivated
    | Output
    | Answered
    | CancelRequested
    | CancelEscalated
    | RunEnded
)
