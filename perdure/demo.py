"""The plugin ``demo``: something to start, watch, cancel and break, written as any plugin is."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from perdure import PluginError, RunContext, SyncRunContext, entry, plugin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Seconds = Annotated[float, Meta(ge=0, le=3600)]
Mebibytes = Annotated[int, Meta(ge=1, le=1024)]


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
    async def files(self, ctx: RunContext, mebibytes: Mebibytes = 4) -> None:
        """Export an item of each type, and a file that is too large for an item."""
        text = await ctx.run.export_text("A text.", "a text", mime="text/plain", key="text")
        await ctx.run.export_url("https://example.org/", "an address", key="url")
        await ctx.run.export_json({"answer": 42}, "a JSON value", key="json")
        await ctx.run.export_binary(b"\x00\x01\x02", "a few bytes", key="binary")
        await ctx.run.export_id(text, "a reference to the text", key="reference")

        async def lines() -> AsyncIterator[bytes]:
            for number in range(mebibytes * 1024):
                ctx.run.check_cancelled()
                yield f"{number:>1023}\n".encode()  # a KiB
                ctx.run.progress((number + 1) / (mebibytes * 1024))

        name = f"{mebibytes} MiB of numbers"
        large = await ctx.run.export_bytes(lines(), name, mime="text/plain", key="large")
        ctx.run.result(large)

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
