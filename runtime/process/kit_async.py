"""The process side of an async entry: the port of a plain one, awaited, on asyncio.

Whatever is awaited waits in the loop: any number of calls at once, and one that is given up leaves
nothing behind that the entry would have to wait for.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perdure.runtime.plugins.current_run import CurrentRun
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.process.process_port import ProcessPort

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from perdure.runtime.process.pipes import Talk
    from perdure.runtime.process.process_port import Answer


class AsyncioPort(ProcessPort):
    """The port of an async function on asyncio."""

    def __init__(self, talk: Talk) -> None:
        """Belong to the loop that executes the entry."""
        super().__init__(talk)
        self._loop = asyncio.get_running_loop()

    def _new_queue(self) -> asyncio.Queue[Answer]:
        return asyncio.Queue()

    def _bring(self, hear: Callable[[Answer], None], answer: Answer) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(hear, answer)

    async def _waited_for(self, value: Any) -> Any:  # noqa: ANN401 - what was waited for
        return await value


def call(handler: Callable[..., Awaitable[Any]], talk: Talk, args: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what the entry returns
    """Execute an async entry to its end."""

    async def main() -> Any:  # noqa: ANN401 - what the entry returns
        return await handler(RunContext(CurrentRun(AsyncioPort(talk))), **args)

    return asyncio.run(main())
