"""``ctx.run``: what an entry sees of its own run, wherever it runs. Light.

Reports and log lines are plain calls and cost nothing. Exports wait when too many are on their way.
Steps, sleeps, questions and children have names: after a crash the entry is called again, and what
has a name already has its outcome.

A call becomes a message, which is checked and given to the port of the place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from perdure.runtime.plugins.contract import ONCE, Retry, RunCancelled
from perdure.runtime.plugins.run_messages import (
    Ask,
    Bytes,
    Export,
    Log,
    Progress,
    Result,
    Sleep,
    Stage,
    Start,
    Step,
    checked_limit,
    rule_of,
)
from perdure.runtime.plugins.step_body import StepBody

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping

    from perdure.runtime.plugins.byte_source import Piece
    from perdure.runtime.plugins.run_port import RunPort

Value = TypeVar("Value")


class ReportingRun:
    """What is never awaited: who the run is, whether it was asked to end, and its reports."""

    def __init__(self, port: RunPort) -> None:
        """Reach the run through a port."""
        about = port.about
        self._port = port
        self.id: str = about.id
        self.attempt: int = about.attempt
        self.root_id: str = about.root_id
        self.trace_id: str | None = about.trace_id
        self.deadline: int | None = about.deadline  # UTC nanoseconds
        self.attempt_token: str = about.attempt_token  # the same over all activations

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to end."""
        return self._port.cancelled

    def check_cancelled(self) -> None:
        """Raise RunCancelled if the run was asked to end."""
        if self.cancelled:
            raise RunCancelled(self._port.cancel_reason)

    def progress(self, progress: float, message: str | None = None) -> None:
        """Report how far the work is, from 0.0 to 1.0."""
        self._port.report(Progress(progress=progress, message=message).checked())

    def status(self, stage: str, message: str | None = None) -> None:
        """Name what the work is doing. This is a stage, not the run's status."""
        self._port.report(Stage(stage=stage, message=message).checked())

    def log(self, text: str, level: str = "info") -> None:
        """Log a line."""
        self._port.report(Log(text=text, level=level).checked())

    def result(self, *items: str) -> None:
        """Mark these items, by id, as the run's result. The last call counts."""
        result = Result(items=list(items))
        result.numbers(self.id)  # refuses one that is not of this run
        self._port.report(result)


class CurrentRun(ReportingRun):
    """The run that is being executed, as its entry sees it."""

    # Exports (``self`` is no keyword, so that a type checker knows the plain calls, too)

    async def export_text(self, /, text: str, description: str | None = None, **more: Any) -> str:
        """Export a text; give the item's id."""
        return await self.export("text", text, description, **more)

    async def export_url(self, /, url: str, description: str | None = None, **more: Any) -> str:
        """Export an address; give the item's id."""
        return await self.export("url", url, description, **more)

    async def export_binary_url(
        self, /, url: str, description: str | None = None, **more: Any
    ) -> str:
        """Export the address of bytes; give the item's id. A blob must be one of this run."""
        return await self.export("binary_url", url, description, **more)

    async def export_binary(
        self, /, data: bytes | str, description: str | None = None, **more: Any
    ) -> str:
        """Export a few bytes, or their base64, as they are; give the item's id."""
        return await self.export("binary", data, description, **more)

    async def export_bytes(
        self,
        data: Piece | Iterable[Piece] | AsyncIterable[Piece],
        description: str | None = None,
        *,
        mime: str | None = None,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Export bytes of any size, whole or piece by piece; give the item's id.

        A few are in the item itself. More become a blob, which is on disk before the item is: when
        this returns, both survive a power cut.
        """
        about: dict[str, Any] = {"mime": mime, "key": key, "metadata": metadata}
        item = Bytes(description=description, **about).checked()
        return await self._port.export_bytes(item, data)

    async def export_json(self, /, value: Any, description: str | None = None, **more: Any) -> str:  # noqa: ANN401
        """Export a JSON value; give the item's id."""
        return await self.export("json", value, description, **more)

    async def export_id(self, /, ref: str, description: str | None = None, **more: Any) -> str:
        """Export a reference to an item that exists, of any run of the same owner.

        Nothing is copied: the new item is a url that names the other.
        """
        return await self.export("id", ref, description, **more)

    async def export(
        self,
        /,
        type: str,  # noqa: A002 - it is the item's type
        content: Any,  # noqa: ANN401 - as its type says
        description: str | None = None,
        **more: Any,
    ) -> str:
        """Export an item of any type, by name; a binary as base64, an ``id`` as a reference."""
        item = Export(type=type, content=content, description=description, **more).checked()
        return cast("str", await self._port.call(item))

    # Durable steps

    async def step(
        self,
        name: str,
        fn: Callable[..., Awaitable[Value]],
        *args: Any,
        retry: Retry = ONCE,
        timeout: float | None = None,  # noqa: ASYNC109 - of each try, also after a crash
    ) -> Value:
        """Do something once: its result is recorded and returned again after a crash.

        The function itself runs at least once. Whatever it calls outside can be told apart by
        ``attempt_token`` and the step's name, which stay the same. A try that takes longer than
        ``timeout`` seconds is stopped and has failed; a plain function cannot be stopped, and is
        refused a time limit.
        """
        step = Step(name=name, retry=rule_of(retry)).checked()
        body = StepBody(name, fn, args, retry, checked_limit(timeout)).checked()
        return cast("Value", await self._port.step(step, body.awaited))

    async def sleep(self, seconds: float, name: str | None = None) -> None:
        """Sleep, through crashes and restarts, until so many seconds after the first call."""
        await self._port.call(Sleep(seconds=seconds, name=name).checked())

    async def ask(self, question: Any, name: str | None = None) -> Any:  # noqa: ANN401
        """Ask people or programs outside, and wait for the answer, however long it takes."""
        return await self._port.call(Ask(question=question, name=name).checked())

    async def start(
        self,
        plugin_id: str,
        entry_id: str,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> str:
        """Start another run; give its id. It is canceled when this one is."""
        passed: Any = args or {}  # a mapping, or refused
        start = Start(plugin_id=plugin_id, entry_id=entry_id, args=passed, name=name).checked()
        return cast("str", await self._port.call(start))
