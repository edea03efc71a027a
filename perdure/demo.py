"""The plugin ``demo``: something to start, watch, cancel and break, written as any plugin is."""

from __future__ import annotations

import signal
from typing import Annotated, Any

from msgspec import Meta

from perdure import PluginError, RunContext, SyncRunContext, entry, plugin

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Seconds = Annotated[float, Meta(ge=0, le=3600)]


@plugin("demo", version="1")
class Demo:
    """Small entries that each show one thing."""

    @entry
    async def count(self, ctx: RunContext, to: Count = 10, delay: Seconds = 0.1) -> int:
        """Count, report progress, and export a line for each tenth."""
        import trio

        for number in range(1, to + 1):
            ctx.run.check_cancelled()
            await trio.sleep(delay)
            ctx.run.progress(number / to, f"{number} of {to}")
            if number * 10 // to > (number - 1) * 10 // to:
                await ctx.run.export_text(f"counted to {number}", key=f"at-{number}")
        return to

    @entry
    async def fail(self, ctx: RunContext, code: str = "DEMO_FAILED") -> None:
        """Fail with a code of your choice."""
        ctx.run.log(f"about to fail with {code}", level="error")
        raise PluginError(code, "this entry fails, as it was asked to")

    @entry
    async def steps(self, ctx: RunContext, n: Count = 5, delay: Seconds = 1.0) -> list[int]:
        """Do durable steps: kill the process between two of them and start it again."""
        import trio

        async def square(number: int) -> int:
            await trio.sleep(delay)
            return number * number

        squares = []
        for number in range(n):
            ctx.run.status("working", f"step {number + 1} of {n}")
            squares.append(await ctx.run.step(f"square-{number}", square, number))
            ctx.run.progress((number + 1) / n)
        return squares

    @entry
    async def spam(self, ctx: RunContext, n: Count = 10_000) -> None:
        """Report and log as fast as possible; the log stays small."""
        import trio.lowlevel

        for number in range(n):
            ctx.run.progress(number / n)
            ctx.run.log(f"line {number}")
            if number % 100 == 0:
                await trio.lowlevel.checkpoint()
        ctx.run.progress(1.0)

    @entry
    async def ask(self, ctx: RunContext, question: str = "Shall I go on?") -> Any:  # noqa: ANN401
        """Ask a question and return its answer."""
        return await ctx.run.ask({"text": question})

    @entry
    def stubborn(self, ctx: SyncRunContext) -> None:
        """Ignore every request to end, in a process of its own: it has to be killed."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ctx.run.status("stubborn", "not listening")
        while True:
            signal.pause()
