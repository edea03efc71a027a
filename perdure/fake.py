"""A context for tests that call an entry directly: it records what the entry does and does it.

    ctx = fake_context(answers={"ask-1": "yes"})
    assert await MyPlugin().my_entry(ctx, n=3) == 9
    assert ctx.run.progress_reports == [(1.0, None)]

Nothing is stored and nothing runs elsewhere. ``perdure.testing.run_entry`` runs the real thing.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.runtime.execution.run_context import RunContext
from perdure.runtime.plugins.contract import ONCE, FailedStep, PluginError, Retry, RunCancelled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

Result = TypeVar("Result")


@dataclass(slots=True, kw_only=True)
class FakeRun:
    """``ctx.run`` without a run."""

    id: str = "fake-run"
    attempt: int = 1
    root_id: str = "fake-run"
    trace_id: str | None = None
    deadline: int | None = None
    attempt_token: str = "fake-run"  # noqa: S105 - it is no secret
    cancelled: bool = False
    answers: Mapping[str, Any] = field(default_factory=dict)
    progress_reports: list[tuple[float, str | None]] = field(default_factory=list)
    stages: list[tuple[str, str | None]] = field(default_factory=list)
    lines: list[tuple[str, str]] = field(default_factory=list)
    exports: list[dict[str, Any]] = field(default_factory=list)
    results: tuple[str, ...] = ()
    steps: dict[str, Any] = field(default_factory=dict)
    slept: float = 0.0
    started: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    asked: int = 0

    def check_cancelled(self) -> None:
        """Raise RunCancelled if the test has set ``cancelled``."""
        if self.cancelled:
            raise RunCancelled(None)

    def progress(self, progress: float, message: str | None = None) -> None:
        """Note a report."""
        self.progress_reports.append((progress, message))

    def status(self, stage: str, message: str | None = None) -> None:
        """Note a stage."""
        self.stages.append((stage, message))

    def log(self, text: str, level: str = "info") -> None:
        """Note a line."""
        self.lines.append((level, text))

    async def export(
        self,
        type: str,  # noqa: A002 - it is the item's type
        content: Any,  # noqa: ANN401 - as its type says
        description: str | None = None,
        **more: Any,
    ) -> str:
        """Note an item; give its id."""
        self.exports.append({"type": type, "content": content, "description": description, **more})
        return f"{self.id}.{len(self.exports)}"

    async def export_text(self, text: str, description: str | None = None, **more: Any) -> str:
        """Note a text."""
        return await self.export("text", text, description, **more)

    async def export_url(self, url: str, description: str | None = None, **more: Any) -> str:
        """Note an address."""
        return await self.export("url", url, description, **more)

    async def export_binary_url(self, url: str, description: str | None = None, **more: Any) -> str:
        """Note the address of bytes."""
        return await self.export("binary_url", url, description, **more)

    async def export_binary(
        self, data: bytes | str, description: str | None = None, **more: Any
    ) -> str:
        """Note a few bytes."""
        return await self.export("binary", data, description, **more)

    async def export_bytes(
        self,
        data: bytes | Iterable[bytes] | AsyncIterable[bytes],
        description: str | None = None,
        *,
        mime: str | None = None,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Note bytes, all of them, however they arrive."""
        if isinstance(data, AsyncIterable):
            data = [bytes(piece) async for piece in data]
        whole = bytes(data) if isinstance(data, bytes | bytearray) else b"".join(data)
        more = {"mime": mime, "key": key, "metadata": metadata}
        said = {name: part for name, part in more.items() if part is not None}
        return await self.export("bytes", whole, description, **said)

    async def export_json(self, value: Any, description: str | None = None, **more: Any) -> str:  # noqa: ANN401
        """Note a value."""
        return await self.export("json", value, description, **more)

    async def export_id(self, ref: str, description: str | None = None, **more: Any) -> str:
        """Note a reference."""
        return await self.export("id", ref, description, **more)

    def result(self, *items: str) -> None:
        """Note the result."""
        self.results = items

    async def step(
        self, name: str, fn: Callable[..., Awaitable[Result]], *args: Any, retry: Retry = ONCE
    ) -> Result:
        """Do a step, as often as its rule allows, without waiting between tries."""
        for tries in range(1, retry.tries + 1):
            try:
                value = await fn(*args)
            except RunCancelled:
                raise
            except Exception as error:
                if tries == retry.tries:
                    raise FailedStep("PLUGIN_ERROR", f"{type(error).__name__}: {error}") from error
            else:
                self.steps[name] = value
                return value
        raise PluginError("VALIDATION_ERROR", "a step is tried at least once")

    async def sleep(self, seconds: float, name: str | None = None) -> None:  # noqa: ARG002
        """Note a sleep; it takes no time."""
        self.slept += seconds

    async def ask(self, question: Any, name: str | None = None) -> Any:  # noqa: ANN401
        """Give the answer that the test has prepared."""
        self.asked += 1
        name = name or f"ask-{self.asked}"
        if name not in self.answers:
            raise AssertionError(f"{name} asks {question!r}: pass answers={{{name!r}: ...}}")
        return self.answers[name]

    async def start(
        self,
        plugin_id: str,
        entry_id: str,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,  # noqa: ARG002 - a fake run is never called again
    ) -> str:
        """Note a child."""
        self.started.append((plugin_id, entry_id, dict(args or {})))
        return f"fake-child-{len(self.started)}"


class FakeContext(RunContext):
    """A context whose run is a fake one."""

    __slots__ = ()
    run: FakeRun  # type: ignore[assignment]


def fake_context(**parts: Any) -> FakeContext:
    """Make a context for a test; ``parts`` are fields of FakeRun."""
    return FakeContext(FakeRun(**parts))  # type: ignore[arg-type]
