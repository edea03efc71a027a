"""Entries in threads: for those who ask for it.

A thread cannot be stopped. When its run is canceled or out of time it is left behind: whatever it
says later is refused, and what it returns is thrown away. It has ``ctx.run`` of a plain function.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import trio
import trio.from_thread

from perdure.runtime.blobs.byte_source import Piece
from perdure.runtime.plugins.contract import ONCE, Retry, RunCancelled, RunContext

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from perdure.runtime.execution.current_run import CurrentRun
    from perdure.runtime.execution.execution import Execution

THREADS: Final = 40  # entries in threads at once; one that was left behind counts until it ends
_END: Final = object()  # of bytes that come piece by piece


class ThreadRun:
    """``ctx.run`` in a thread: every call goes to the event loop and takes its time there."""

    def __init__(self, run: CurrentRun, execution: Execution) -> None:
        """Stand for the run of an execution."""
        self._run = run
        self._execution = execution

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the run offers
        """Give what the run offers; what is awaited there simply takes its time here."""
        offered = getattr(self._run, name)
        if not callable(offered):
            return offered

        def call(*args: Any, **more: Any) -> Any:  # noqa: ANN401 - what the call gives
            return self._in_loop(offered, *args, **more)

        return call

    def step(self, name: str, fn: Callable[..., Any], *args: Any, retry: Retry = ONCE) -> Any:  # noqa: ANN401
        """Do something once, in a thread."""

        async def body() -> Any:  # noqa: ANN401 - what the step gives
            return await self._execution.in_thread(lambda: fn(*args))

        return self._in_loop(self._run.step, name, body, retry=retry)

    def export_bytes(self, data: Any, description: str | None = None, **more: Any) -> Any:  # noqa: ANN401
        """Export bytes; what gives them piece by piece does so in a thread."""
        if isinstance(data, Iterable) and not isinstance(data, Piece | str):
            data = self._pieces(iter(data))
        return self._in_loop(self._run.export_bytes, data, description, **more)

    async def _pieces(self, data: Iterator[Any]) -> AsyncIterator[Any]:
        while (piece := await self._execution.in_thread(lambda: next(data, _END))) is not _END:
            yield piece

    def _in_loop(self, call: Callable[..., Any], *args: Any, **more: Any) -> Any:  # noqa: ANN401
        async def main() -> Any:  # noqa: ANN401 - what the call gives
            if self._execution.is_left_behind:
                raise RunCancelled("the run has ended without this thread")
            value = call(*args, **more)
            return await value if inspect.isawaitable(value) else value

        return trio.from_thread.run(main)


async def call_in_thread(
    execution: Execution,
    handler: Callable[..., Any],
    ctx: RunContext,
    args: Mapping[str, Any],
) -> Any:  # noqa: ANN401 - what the entry returns
    """Call a plain function in a thread, which is left behind when the run does not wait for it."""
    context = RunContext(ThreadRun(ctx.run, execution))  # type: ignore[arg-type]
    return await execution.in_thread(lambda: handler(context, **args))
