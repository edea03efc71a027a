"""Durable steps of an execution: what has a name has its outcome once, also after a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Never, TypeVar

from perdure.actors.errors import Invalid
from perdure.actors.run.core import INPUT_REQUIRED, RETRYING
from perdure.actors.run.events import (
    ChildStarted,
    QuestionAsked,
    SleepBegun,
    StepFailed,
    StepRecorded,
)
from perdure.actors.run.history import NOT_RECORDED
from perdure.actors.run.output import checked_size
from perdure.actors.run.report_bounds import shortened
from perdure.actors.run.views import question_text
from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError
from perdure.eventlog.units import NANOSECONDS
from perdure.runtime.execution.outcome import PLUGIN_ERROR, error_of
from perdure.runtime.execution.refusals import told_to_plugins
from perdure.runtime.plugins.contract import FailedStep, RunCancelled, StepError
from perdure.runtime.plugins.error_text import traced
from perdure.runtime.plugins.step_body import LastTry
from perdure.runtime.plugins.step_names import StepNames
from perdure.runtime.secrets.redaction import holds_a_secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure.actors.run.events import RunError
    from perdure.runtime.execution.execution import Execution
    from perdure.runtime.plugins.run_messages import Ask, Sleep, Start, Step

Outcome = TypeVar("Outcome", StepRecorded, SleepBegun, QuestionAsked)

_SHOWN: Final = 160  # characters of a question, or of a failed try, in the message of its stage


class Steps:
    """The steps of one activation."""

    def __init__(self, execution: Execution) -> None:
        """None was taken yet."""
        self._execution = execution
        self._names = StepNames()

    async def step(self, step: Step, body: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401
        """Call a function until it has a result that is recorded, or has failed for good."""
        execution, name = self._execution, self._claim(step.name, "step")
        recorded = execution.history.values.get(name, NOT_RECORDED)
        if recorded is not NOT_RECORDED:
            execution.reached(name)
            return recorded
        failed = await self._failed_before(name)
        while True:
            if execution.cancel_requested:
                raise RunCancelled(execution.cancel_reason)
            await execution.stop_if_over()
            try:
                with execution.waiting.suspended():
                    value = await body()
            except (RunCancelled, StepError):
                raise
            except LastTry as last:
                await self._fail(step, failed + 1, last.error)
            except Exception as error:  # noqa: BLE001 - recorded, and raised unless tried again
                failed += 1
                delay = step.retry.delay_after(failed, execution.chance())
                if delay is None:
                    await self._fail(step, failed, error)
                else:
                    await self._wait_for_next_try(step, failed, error, delay)
            else:
                return await self._record(name, value)

    async def sleep(self, sleep: Sleep) -> None:
        """Wait until so many seconds after the first call."""
        name = self._claim(sleep.name, "sleep")
        until = self._execution.history.sleeps.get(name)
        if until is None:
            now = self._execution.now()
            until = now + round(sleep.seconds * NANOSECONDS)
            begun = _storable(SleepBegun(step=name, until=until, at=now))
            await self._execution.delivery.hand_over(begun)
        self._execution.reached(name)
        await self._execution.waiting.until(until)

    async def ask(self, ask: Ask) -> Any:  # noqa: ANN401 - whatever is answered
        """Ask outside, once; wait for the answer."""
        name = self._claim(ask.name, "ask")
        question_id = self._execution.history.questions.get(name)
        if question_id is None:
            self._execution.redactor.refuse("a question", ask.question)
            question_id, now = self._execution.new_id(), self._execution.now()
            asked = QuestionAsked(step=name, question_id=question_id, question=ask.question, at=now)
            text = question_text(ask.question)
            message = None if text is None else shortened(text, _SHOWN)
            self._execution.outbox.ask(_storable(asked), INPUT_REQUIRED, message)
            await self._execution.delivery.hand_over()
        self._execution.reached(name)
        return await self._execution.waiting.answer_to(question_id)

    async def start(self, start: Start) -> str:
        """Start a child, once; give its id."""
        name = self._claim(start.name, "start")
        self._execution.secrets.know_of_child(start.plugin_id, start.entry_id, start.args)
        child = self._execution.history.children.get(name)
        if child is None:
            child = self._execution.new_id()
            started = ChildStarted(step=name, child_run_id=child, at=self._execution.now())
            with told_to_plugins:
                await self._execution.delivery.start_child(
                    started, start.plugin_id, start.entry_id, start.args
                )
        self._execution.reached(name)
        return child

    def _claim(self, name: str | None, kind: str) -> str:
        self._execution.redactor.refuse("the name of a step", name)
        return self._names.claim(name, kind)

    async def _failed_before(self, name: str) -> int:
        """Take up a step that an earlier activation has tried in vain."""
        failure = self._execution.history.failures.get(name)
        if failure is None:
            return 0
        if failure.retry_at is None:
            raise _failed_step(failure.error)
        await self._execution.waiting.until(failure.retry_at)
        return failure.tries

    async def _record(self, name: str, value: Any) -> Any:  # noqa: ANN401 - what the step returned
        stored = recordable(name, value)
        if self._execution.redactor.finds(value):
            raise StepError(holds_a_secret(f"the result of step {name!r}"))
        recorded = StepRecorded(step=name, value=cbor.decode(stored), at=self._execution.now())
        self._execution.outbox.drop_stage(RETRYING)
        await self._execution.delivery.hand_over(_storable(recorded))
        self._execution.reached(name)
        return cbor.decode(stored)  # the same now as after a crash

    async def _fail(self, step: Step, failed: int, error: Exception) -> Never:
        """Record the last try, and raise what has failed: the same now as after a crash."""
        execution = self._execution
        told, now = error_of(error, execution.redactor), execution.now()
        if step.retry.tries > 1:
            self._log(step, failed, told, "for good")
        execution.outbox.drop_stage(RETRYING)
        await execution.delivery.hand_over(
            StepFailed(step=step.name, tries=failed, error=told, retry_at=None, at=now)
        )
        execution.reached(step.name)
        raise _failed_step(told) from error

    async def _wait_for_next_try(
        self, step: Step, failed: int, error: Exception, delay: float
    ) -> None:
        """Record a failed try, show that another follows, and wait for it."""
        execution = self._execution
        told, now = error_of(error, execution.redactor), execution.now()
        retry_at = now + round(delay * NANOSECONDS)
        self._log(step, failed, told, f"and is tried again in {delay:.3g} s", traced(error))
        await execution.delivery.hand_over(
            StepFailed(step=step.name, tries=failed, error=told, retry_at=retry_at, at=now)
        )
        execution.reached(step.name)
        waits = f"{step.name}: try {failed + 1} of {step.retry.tries} after {told.message}"
        execution.outbox.stage(RETRYING, shortened(waits, _SHOWN), now)
        execution.delivery.something_waits()
        await execution.waiting.until(retry_at)

    def _log(
        self, step: Step, failed: int, told: RunError, what: str, trace: str | None = None
    ) -> None:
        """Log a failed try: what is raised without a code has its class in its message."""
        said = told.message if told.code == PLUGIN_ERROR else f"{told.code}: {told.message}"
        text = f"step {step.name!r} failed {what}, try {failed} of {step.retry.tries}: {said}"
        self._execution.log("warning", text if trace is None else f"{text}\n{trace}")


def recordable(name: str, value: Any) -> bytes:  # noqa: ANN401 - what the step returned
    """Give the result of a step as it is recorded, or refuse it."""
    try:
        return cbor.encode(value)
    except CodecError as error:
        raise StepError(f"the result of step {name!r} cannot be recorded: {error}") from error


def _failed_step(error: RunError) -> FailedStep:
    return FailedStep(error.code, error.message, details=error.details, retriable=error.retriable)


def _storable(event: Outcome) -> Outcome:
    """Refuse at the step what could not be recorded."""
    try:
        checked_size(event)
    except Invalid as error:
        raise StepError(f"step {event.step!r} cannot be recorded: {error}") from error
    return event
