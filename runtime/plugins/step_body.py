"""The function of a step as it is called: its time limit, and after which errors no try follows.

Light. The rest of a step is the same in every place; this is done where the function is.
"""

from __future__ import annotations

import sys
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from perdure.runtime.plugins.contract import Retry, StepError, StepTimeout
from perdure.runtime.plugins.error_text import is_cancellation, unwrapped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_PLAIN: Final = (
    "step {!r} got a plain function, and this entry is async: make it `async def`, or call it in a"
    " thread (on Trio: `step(name, trio.to_thread.run_sync, function, ...)`)"
)
_ASYNC: Final = (
    "step {!r} got an async function, and this entry is a plain one, which awaits nothing: make"
    " the step a plain function, or the entry `async def`"
)
_CALLED: Final = (
    "step {!r} takes a function and its arguments, not a {}: write `step(name, function, argument)`"
    " and not `step(name, function(argument))`"
)


class LastTry(Exception):
    """What a step has raised, and after which it is not tried again."""

    def __init__(self, error: Exception) -> None:
        """Hold the error itself."""
        super().__init__(error)
        self.error = error


class StepBody(NamedTuple):
    """What a step calls."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    retry: Retry
    limit: float | None = None  # seconds of one try; what awaits nothing cannot be stopped

    def checked(self) -> Self:
        """Refuse what cannot be called."""
        given: Any = self.fn
        if not callable(given):
            if iscoroutine(given):
                given.close()
            raise StepError(_CALLED.format(self.name, type(given).__name__))
        return self

    def plain(self) -> Any:  # noqa: ANN401 - what the function returns
        """Call it in a place where nothing is awaited."""
        try:
            value = self.fn(*self.args)
        except Exception as error:
            self._tell_if_last(error)
            raise
        if isawaitable(value):
            if iscoroutine(value):
                value.close()
            raise StepError(_ASYNC.format(self.name))
        return value

    async def awaited(self) -> Any:  # noqa: ANN401 - what the function returns
        """Call it and wait for it, if there is a time limit only so long."""
        try:
            value = self.fn(*self.args)
            if isawaitable(value):
                return await (value if self.limit is None else self._within(self.limit, value))
        except Exception as error:
            self._tell_if_last(error)
            raise
        raise StepError(_PLAIN.format(self.name))

    async def _within(self, seconds: float, work: Awaitable[Any]) -> Any:  # noqa: ANN401
        """Wait on Trio or on asyncio, whichever calls; the work is stopped when time is up."""
        trio = sys.modules.get("trio")
        if trio is not None and trio.lowlevel.in_trio_task():
            with trio.move_on_after(seconds):
                return await work
            raise StepTimeout(self.name, seconds)
        import asyncio  # noqa: PLC0415 - here it is imported already

        time = asyncio.timeout(seconds)
        try:
            async with time:
                return await work
        except TimeoutError:
            if time.expired():
                raise StepTimeout(self.name, seconds) from None
            raise

    def _tell_if_last(self, error: Exception) -> None:
        is_outcome = not (isinstance(error, StepError) or is_cancellation(error))
        if is_outcome and self.retry.tries > 1 and not self.retry.covers(unwrapped(error)):
            raise LastTry(error) from error
