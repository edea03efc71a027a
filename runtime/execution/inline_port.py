"""The port of a run at its execution: what entries ask for is done here, wherever they run.

Inline entries use it as it is. Threads and processes lead here with the same messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from perdure.runtime.execution.exports import Exports
from perdure.runtime.execution.refusals import told_to_plugins
from perdure.runtime.execution.steps import Steps
from perdure.runtime.plugins.current_run import CurrentRun
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.plugins.run_messages import (
    Ask,
    Export,
    Log,
    Progress,
    Result,
    Sleep,
    Stage,
    Start,
)
from perdure.runtime.plugins.run_port import AboutRun

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from perdure.runtime.execution.execution import Execution
    from perdure.runtime.plugins.run_messages import Bytes, Call, Report, Step


class InlinePort:
    """A run, as its execution lets an entry reach it."""

    def __init__(self, execution: Execution) -> None:
        """Belong to one activation."""
        created = execution.run.created
        self.about: AboutRun = AboutRun(
            id=created.run_id,
            attempt=created.attempt,
            root_id=created.root_run_id,
            trace_id=created.trace_id,
            deadline=execution.run.deadline,
            attempt_token=created.run_id,
        )
        self._execution = execution
        self.exports = Exports(execution)
        self._steps = Steps(execution)

    def context(self) -> RunContext:
        """Give an inline entry its first argument."""
        return RunContext(CurrentRun(self))

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to end."""
        return self._execution.cancel_requested

    @property
    def cancel_reason(self) -> str | None:
        """Why, if somebody said so."""
        return self._execution.cancel_reason

    def report(self, report: Report) -> None:
        """Put a report into the outbox."""
        outbox, now = self._execution.outbox, self._execution.now()
        with told_to_plugins:
            match report:
                case Progress():
                    outbox.progress(report.progress, report.message, now)
                case Stage():
                    outbox.stage(report.stage, report.message, now)
                case Log():
                    outbox.log(report.level, report.text, now)
                case Result():
                    outbox.result(report.numbers(self.about.id), now)
                case _:
                    assert_never(report)
        self._execution.delivery.something_waits()

    def call(self, call: Call) -> Coroutine[Any, Any, Any]:
        """Do what is asked for; give the answer."""
        match call:
            case Export():
                return self.exports.export(call)
            case Sleep():
                return self._steps.sleep(call)
            case Ask():
                return self._steps.ask(call)
            case Start():
                return self._steps.start(call)

    def step(self, step: Step, body: Callable[[], Awaitable[Any]]) -> Coroutine[Any, Any, Any]:
        """Do a step once."""
        return self._steps.step(step, body)

    def export_bytes(self, item: Bytes, data: Any) -> Coroutine[Any, Any, str]:  # noqa: ANN401
        """Take in bytes; give the item's id."""
        return self.exports.export_bytes(item, data)
