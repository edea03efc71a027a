"""The rules of a run: what it decides, and what becomes of it.

``decide`` refuses or gives events; ``evolve`` takes any history. Both are pure, and both take what
is possible in which status from one table (``perdure.actors.run.status``). A run is executed
only under an activation, which has an epoch; whatever an execution sends carries its epoch, and
any other is refused here. That is the fence: an execution that was given up for lost can come back
and say what it likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final, assert_never

import msgspec
from msgspec.structs import replace

from perdure.actors.decider import Decider
from perdure.actors.errors import AnsweredOtherwise, Fenced, Invalid, NoSuchQuestion
from perdure.actors.run.commands import (
    Activate,
    Answer,
    Deactivate,
    Deliver,
    Finish,
    Recover,
    RequestCancel,
    RunCommand,
)
from perdure.actors.run.crashes import crashes_of, fault_of
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
    Output,
    ProgressReported,
    QuestionAsked,
    ResultMarked,
    ResultRef,
    RunCreated,
    RunEnded,
    RunError,
    RunEvent,
    SleepBegun,
    StageChanged,
    StepFailed,
    StepRecorded,
)
from perdure.actors.run.output import check_output
from perdure.actors.run.same_answer import is_same
from perdure.actors.run.status import CancelMode, Move, Outcome, Status, can, moved, require
from perdure.actors.run.stopped import canceled, end_of_stopped, timed_out
from perdure.eventlog.record import FieldValue
from perdure.eventlog.units import NANOSECONDS

FOLD: Final = "run-3"  # the version of this fold; snapshots of another are not used
_A_CENTURY: Final = 100 * 365 * 24 * 3600.0  # seconds; nobody waits longer
INPUT_REQUIRED: Final = "input_required"  # the stage of a run that waits for an answer
RETRYING: Final = "retrying"  # the stage of a run with a step that has failed, and is tried again
UNANSWERED: Final = object()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as far as its rules need to know it."""

    created: RunCreated
    status: Status = Status.QUEUED
    epoch: int = 0
    active: bool = False  # an activation is in charge
    plugin_version: str | None = None
    host: str = ""  # of the newest activation
    activated_at: int = 0
    is_idle: bool = False  # since then it was at work, and has recorded no progress
    crashes: float = 0.0  # losses of its hosts that count against it
    started_at: int | None = None
    finished_at: int | None = None
    progress: float | None = None
    message: str | None = None
    stage: str | None = None
    cancel: CancelRequested | None = None
    cancel_mode: CancelMode | None = None
    cancel_at: int = 0  # when it was asked in this mode
    cancel_deadline: int | None = None  # when a harder way follows, as the newest request says
    exports: int = 0
    marked: tuple[int, ...] = ()
    marked_refs: tuple[ResultRef, ...] = ()  # what those are, if it was said
    open_questions: frozenset[str] = frozenset()
    answers: Mapping[str, Any] = {}
    children: tuple[str, ...] = ()
    asleep_until: int = 0
    retrying: frozenset[str] = frozenset()  # steps that have failed and are tried again
    error: RunError | None = None
    result: tuple[int, ...] = ()

    @property
    def deadline(self) -> int | None:
        """When time is up: counted from the start, whatever happened since."""
        if self.started_at is None or self.created.timeout is None:
            return None
        return self.started_at + round(min(self.created.timeout, _A_CENTURY) * NANOSECONDS)

    @property
    def asking(self) -> frozenset[str]:
        """The questions that can still be answered: once it has ended, none."""
        return frozenset() if self.status.is_terminal else self.open_questions


def decide(run: Run, command: RunCommand) -> tuple[RunEvent, ...]:
    """Give the events that follow from a command, or refuse it."""
    match command:
        case Activate():
            return _activate(run, command)
        case Deactivate(epoch=epoch, at=at):
            _require_charge(run, epoch, Move.WORK)
            return (Deactivated(epoch=epoch, at=at),)
        case Deliver(epoch=epoch, outputs=outputs):
            _require_charge(run, epoch, Move.WORK)
            _check_outputs(run, outputs)
            return outputs
        case Finish():
            return _finish(run, command)
        case RequestCancel():
            return _request_cancel(run, command)
        case Answer():
            return _answer(run, command)
        case Recover():
            return _recover(run, command)
        case _:
            assert_never(command)


def _activate(run: Run, command: Activate) -> tuple[RunEvent, ...]:
    require(run.status, Move.ACTIVATE)
    if command.epoch != run.epoch + 1:
        raise Fenced(command.epoch, run.epoch)
    return (
        Activated(
            host=command.host,
            epoch=command.epoch,
            plugin_version=command.plugin_version,
            suspects=command.suspects,
            at=command.at,
        ),
    )


def _finish(run: Run, command: Finish) -> tuple[RunEvent, ...]:
    _require_charge(run, command.epoch, command.outcome)
    if (command.error is None) != (command.outcome is Outcome.SUCCEEDED):
        raise Invalid("a run succeeds without an error and ends otherwise with one")
    marked = _check_outputs(run, command.outputs)
    ended = RunEnded(outcome=command.outcome, error=command.error, result=marked, at=command.at)
    return (*command.outputs, ended)


def _request_cancel(run: Run, command: RequestCancel) -> tuple[RunEvent, ...]:
    if not can(run.status, Move.CANCEL):
        return ()  # too late is not an error
    if run.cancel_mode is not None:
        if command.mode <= run.cancel_mode:
            return ()
        return (CancelEscalated(mode=command.mode, at=command.at, deadline=command.deadline),)
    requested = CancelRequested(
        intent=command.intent,
        mode=command.mode,
        reason=command.reason,
        by=command.by,
        at=command.at,
        deadline=command.deadline,
    )
    if not can(run.status, Move.WORK):  # no entry is there to end it
        return (requested, _ended_by(run, requested, command.at))
    return (requested,)


def _answer(run: Run, command: Answer) -> tuple[RunEvent, ...]:
    given = run.answers.get(command.question_id, UNANSWERED)
    if given is not UNANSWERED:
        if is_same(given, command.answer):
            return ()
        raise AnsweredOtherwise(command.question_id)
    if command.question_id not in run.open_questions:
        raise NoSuchQuestion(command.question_id)
    require(run.status, Move.ANSWER)
    return (
        Answered(
            question_id=command.question_id,
            answer=command.answer,
            by=command.by,
            at=command.at,
        ),
    )


def _recover(run: Run, command: Recover) -> tuple[RunEvent, ...]:
    """What becomes of a run whose host is gone."""
    if not can(run.status, Outcome.FAILED):
        return ()  # it has ended, or waits for its first host
    if run.cancel is not None:
        return (_ended_by(run, run.cancel, command.at),)
    if run.deadline is not None and command.at >= run.deadline:
        return (_ended(run, Outcome.TIMEOUT, timed_out(run.created), command.at),)
    if not command.compatible:
        return (_lost(run, "the plugin's version has changed and is not compatible", command.at),)
    if not command.resumes:
        return (_lost(run, "the host was lost while the run was running", command.at),)
    fault = fault_of(crashes_of(run, suspects=command.suspects, at=command.at))
    return () if fault is None else (_lost(run, fault, command.at),)


def _ended_by(run: Run, cancel: CancelRequested, at: int) -> RunEnded:
    if not can(run.status, Outcome.TIMEOUT):  # it has not begun
        return _ended(run, Outcome.CANCELED, canceled(cancel.reason), at)
    return _ended(run, *end_of_stopped(run.created, cancel), at)


def _lost(run: Run, why: str, at: int) -> RunEnded:
    error = RunError(code="HOST_LOST", message=why, retriable=True)
    return _ended(run, Outcome.FAILED, error, at)


def _ended(run: Run, outcome: Outcome, error: RunError, at: int) -> RunEnded:
    return RunEnded(outcome=outcome, error=error, result=run.marked, at=at)


def _require_charge(run: Run, epoch: int, move: Move | Outcome) -> None:
    """Refuse whoever is not the execution in charge, and what the run cannot do now."""
    if not run.active or epoch != run.epoch:
        raise Fenced(epoch, run.epoch)
    require(run.status, move)


def _check_outputs(run: Run, outputs: tuple[Output, ...]) -> tuple[int, ...]:
    """Refuse outputs that do not fit; give the result marked after them."""
    exports, marked = run.exports, run.marked
    for output in outputs:
        check_output(output, exports)
        if isinstance(output, ExportAppended):
            exports += 1
        elif isinstance(output, ResultMarked):
            marked = output.items
    return marked


def evolve(run: Run | None, event: RunEvent) -> Run:
    """Take an event in. History is never refused."""
    if isinstance(event, RunCreated):
        return Run(created=event)
    if run is None:
        raise TypeError(f"a run begins with RunCreated, not {type(event).__name__}")
    match event:
        case Activated():
            return _activated(run, event)
        case Deactivated():
            return replace(run, active=False)
        case ProgressReported():
            return _progressed(run, event)
        case StageChanged(stage=stage, message=message):
            return replace(run, stage=stage, message=message)
        case LogBatch():
            return run
        case ExportAppended(number=number):
            return replace(_cleared(run), exports=number)
        case ResultMarked(items=items, refs=refs):
            return replace(run, marked=items, marked_refs=refs)
        case StepRecorded(step=step):
            return _tried(_cleared(run), step)
        case StepFailed(step=step, retry_at=until):
            if until is None:
                return _tried(_cleared(run), step)
            return replace(_asleep(run, until), retrying=run.retrying | {step})
        case SleepBegun(until=until):
            return _asleep(run, until)
        case QuestionAsked(question_id=asked):
            asking = run.open_questions | {asked}
            return replace(_cleared(run), open_questions=asking)
        case Answered():
            return _answered(run, event)
        case ChildStarted(child_run_id=child):
            return replace(_cleared(run), children=(*run.children, child))
        case CancelRequested():
            status = moved(run.status, Move.CANCEL)
            return _asked_to_end(replace(run, status=status, cancel=event), event)
        case CancelEscalated():
            return _asked_to_end(run, event)
        case RunEnded():
            return _over(run, event)
        case _:
            assert_never(event)


def _progressed(run: Run, event: ProgressReported) -> Run:
    is_new = run.progress is None or event.progress > run.progress
    return replace(
        _cleared(run) if is_new else run,
        progress=event.progress,
        stage=run.stage if event.stage is None else event.stage,
        message=run.message if event.keeps_message else event.message,
    )


def _asked_to_end(run: Run, event: CancelRequested | CancelEscalated) -> Run:
    return replace(run, cancel_mode=event.mode, cancel_at=event.at, cancel_deadline=event.deadline)


def _cleared(run: Run) -> Run:
    """Note progress: whatever its hosts were lost to, it was not this run."""
    return replace(run, is_idle=False, crashes=0.0)


def _asleep(run: Run, until: int) -> Run:
    """Note that something in the run waits: coming back to that is no lack of progress."""
    return replace(_cleared(run), asleep_until=max(run.asleep_until, until))


def _answered(run: Run, event: Answered) -> Run:
    """Take an answer; when none is missing any more, the run is at work again."""
    still_open = run.open_questions - {event.question_id}
    answers = {**run.answers, event.question_id: event.answer}
    answered = replace(_cleared(run), open_questions=still_open, answers=answers)
    return answered if still_open else _stage_over(answered, INPUT_REQUIRED)


def _tried(run: Run, step: str) -> Run:
    """Take the outcome of a step; when none is tried again any more, the stage does not say so."""
    if step not in run.retrying:
        return run
    tried = replace(run, retrying=run.retrying - {step})
    return tried if tried.retrying else _stage_over(tried, RETRYING)


def _stage_over(run: Run, stage: str) -> Run:
    """End a stage that we have set, and the message that came with it."""
    return replace(run, stage=None, message=None) if run.stage == stage else run


def _activated(run: Run, event: Activated) -> Run:
    waiting = bool(run.open_questions) or run.asleep_until > event.at
    return replace(
        run,
        status=moved(run.status, Move.ACTIVATE),
        epoch=event.epoch,
        active=True,
        plugin_version=event.plugin_version,
        started_at=run.started_at if run.started_at is not None else event.at,
        host=event.host,
        activated_at=event.at,
        is_idle=not waiting,
        crashes=crashes_of(run, suspects=event.suspects, at=event.at),
    )


def _over(run: Run, event: RunEnded) -> Run:
    return replace(
        run,
        status=event.outcome.status,
        active=False,
        finished_at=event.at,
        error=event.error,
        result=event.result,
    )


def describe(before: Run | None, after: Run) -> dict[str, FieldValue]:
    """Give what followers of runs filter by and show: whose it is, and where it stands now."""
    fields: dict[str, FieldValue] = {
        "tenant": after.created.tenant,
        "plugin_id": after.created.plugin_id,
        "entry_id": after.created.entry_id,
        "task_id": after.created.task_id,
        "status": after.status.value,
        "changed": before is None or before.status is not after.status,
    }
    if after.created.started_by is not None:
        fields["started_by"] = after.created.started_by
    if after.progress is not None:
        fields["progress"] = after.progress
    if before is not None and before.stage is not None and after.stage is None:
        fields["stage_over"] = True
    return fields


RUN: Final = Decider(
    state=Run,
    initial=None,
    decide=decide,
    evolve=evolve,
    describe=describe,
    is_over=attrgetter("status.is_terminal"),
    trace=attrgetter("created.trace_id"),
    events=RUN_EVENTS,
    fold=FOLD,
)
