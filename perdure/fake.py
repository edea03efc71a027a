"""A context for tests that call an entry directly: it records what the entry does and does it.

    ctx = fake_context(answers={"ask-1": "yes"})
    assert await MyPlugin().my_entry(ctx, n=3) == 9
    assert ctx.run.progress_reports == [(1.0, None)]

Nothing is stored and nothing runs elsewhere. ``perdure.testing.run_entry`` runs the real thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perdure.actors.run.item_id import export_item_id
from perdure.actors.run.output import inline_bytes
from perdure.eventlog import cbor
from perdure.runtime.execution.refusals import told_to_plugins
from perdure.runtime.execution.steps import recordable
from perdure.runtime.plugins.byte_source import pieces_of
from perdure.runtime.plugins.contract import FailedStep, PluginError, RunCancelled, StepError
from perdure.runtime.plugins.current_run import CurrentRun
from perdure.runtime.plugins.error_text import unwrapped
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
from perdure.runtime.plugins.step_body import LastTry
from perdure.runtime.plugins.step_names import StepNames

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure.runtime.plugins.run_messages import Bytes, Call, Report, Step


@dataclass(kw_only=True)
class FakeRun(CurrentRun):
    """``ctx.run`` without a run: it checks what a real one checks, and notes the rest here."""

    id: str = "fake-run"
    attempt: int = 1
    root_id: str = "fake-run"
    trace_id: str | None = None
    deadline: int | None = None
    attempt_token: str = "fake-run"  # noqa: S105 - it is no secret
    cancelled: bool = False
    cancel_reason: str | None = None
    answers: Mapping[str, Any] = field(default_factory=dict)
    progress_reports: list[tuple[float, str | None]] = field(default_factory=list)
    stages: list[tuple[str, str | None]] = field(default_factory=list)
    lines: list[tuple[str, str]] = field(default_factory=list)
    exports: list[dict[str, Any]] = field(default_factory=list)
    results: tuple[str, ...] = ()
    steps: dict[str, Any] = field(default_factory=dict)
    slept: float = 0.0
    started: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Lead to a port that notes everything here."""
        super().__init__(_FakePort(self))


class _FakePort:
    """Notes what an entry says, and does its steps; a sleep takes no time."""

    def __init__(self, run: FakeRun) -> None:
        self._run = run
        self._names = StepNames()

    @property
    def about(self) -> AboutRun:
        run = self._run
        return AboutRun(
            id=run.id,
            attempt=run.attempt,
            root_id=run.root_id,
            trace_id=run.trace_id,
            deadline=run.deadline,
            attempt_token=run.attempt_token,
        )

    @property
    def cancelled(self) -> bool:
        return self._run.cancelled

    @property
    def cancel_reason(self) -> str | None:
        return self._run.cancel_reason

    def report(self, report: Report) -> None:
        match report:
            case Progress():
                self._run.progress_reports.append((report.progress, report.message))
            case Stage():
                self._run.stages.append((report.stage, report.message))
            case Log():
                self._run.lines.append((report.level, report.text))
            case Result():
                self._mark(report)

    def _mark(self, result: Result) -> None:
        for number in result.numbers(self._run.id):
            if number > len(self._run.exports):
                fault = f"export {number} cannot be a result: there is none"
                raise PluginError("VALIDATION_ERROR", fault)
        self._run.results = tuple(result.items)

    async def call(self, call: Call) -> Any:  # noqa: ANN401 - what was asked for
        match call:
            case Export():
                if call.type == "binary":
                    with told_to_plugins:
                        inline_bytes(call.content)
                return self._note(call, call.type, call.content)
            case Sleep():
                self._names.claim(call.name, "sleep")
                self._run.check_cancelled()
                self._run.slept += call.seconds
                return None
            case Ask():
                return self._answer(call.question, self._names.claim(call.name, "ask"))
            case Start():
                self._names.claim(call.name, "start")
                self._run.started.append((call.plugin_id, call.entry_id, call.args))
                return f"fake-child-{len(self._run.started)}"

    async def step(self, step: Step, body: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401
        """Try as often as the rule allows, without waiting between tries."""
        name, failed = self._names.claim(step.name), 0
        while True:
            self._run.check_cancelled()
            try:
                value = await body()
            except (RunCancelled, StepError):
                raise
            except LastTry as last:
                raise _failed(last.error) from last.error
            except Exception as error:
                failed += 1
                if step.retry.delay_after(failed) is None:
                    raise _failed(error) from error
            else:
                self._run.steps[name] = recorded = cbor.decode(recordable(name, value))
                return recorded

    async def export_bytes(self, item: Bytes, data: Any) -> str:  # noqa: ANN401 - bytes, in any way
        whole = b"".join([bytes(piece) async for piece in pieces_of(data)])
        return self._note(item, "bytes", whole)

    def _note(self, item: Export | Bytes, kind: str, content: Any) -> str:  # noqa: ANN401 - as its kind says
        more = {"key": item.key, "mime": item.mime, "metadata": item.metadata}
        said = {name: part for name, part in more.items() if part is not None}
        about = {"type": kind, "content": content, "description": item.description}
        self._run.exports.append({**about, **said})
        return export_item_id(self._run.id, len(self._run.exports))

    def _answer(self, question: object, name: str) -> Any:  # noqa: ANN401 - what the test has prepared
        self._run.check_cancelled()
        if name not in self._run.answers:
            raise AssertionError(f"{name} asks {question!r}: pass answers={{{name!r}: ...}}")
        return self._run.answers[name]


def _failed(raised: Exception) -> FailedStep:
    error = unwrapped(raised)
    if isinstance(error, PluginError):
        more: Any = {"details": error.details, "retriable": error.retriable}
        return FailedStep(error.code, error.message, **more)
    return FailedStep("PLUGIN_ERROR", f"{type(error).__name__}: {error}")


class FakeContext(RunContext):
    """A context whose run is a fake one."""

    __slots__ = ()
    run: FakeRun


def fake_context(**parts: Any) -> FakeContext:
    """Make a context for a test; ``parts`` are fields of FakeRun."""
    return FakeContext(FakeRun(**parts))
