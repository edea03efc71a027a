"""Plain functions as entries: they run in a process of their own."""

import time
from itertools import chain, repeat

from perdure import PluginError, Retry, SyncRunContext, entry, plugin


@plugin("python-example")
class Example:
    """The same entries as the examples in other languages."""

    @entry
    def greet(self, ctx: SyncRunContext, name: str = "you") -> str:
        """Return a greeting."""
        return f"hello {name}"

    @entry
    def report(self, ctx: SyncRunContext) -> None:
        """Report, log, export, and mark a result."""
        ctx.run.status("working", "the first part")
        ctx.run.progress(0.5, "half")
        ctx.run.log("a line")
        print("printed")
        text = ctx.run.export_text("a text", "described", key="text")
        ctx.run.export_json({"a": [1, None]})
        ctx.run.result(text)

    @entry
    def steps(self, ctx: SyncRunContext, n: int = 3) -> list[int]:
        """Do durable steps."""
        return [ctx.run.step(f"square-{number}", pow, number, 2) for number in range(n)]

    @entry
    def flaky(self, ctx: SyncRunContext) -> str:
        """Fail twice, then do it."""
        tries = iter(range(10))

        def body() -> str:
            if next(tries) < 2:
                raise OSError("not yet")
            return "good"

        return ctx.run.step("flaky", body, retry=Retry(tries=3, delay=0.01))

    @entry
    def fail(self, ctx: SyncRunContext, code: str = "MINE") -> None:
        """Fail with a code."""
        raise PluginError(code, "as you wish", details={"a": 1}, retriable=True)

    @entry
    def file(self, ctx: SyncRunContext, size: int = 300_000) -> None:
        """Export a file of any size."""
        line = b"0123456789abcde\n"
        whole, rest = divmod(size, len(line))
        pieces = chain(repeat(line, whole), [line[:rest]])
        file = ctx.run.export_bytes(pieces, "a file", mime="text/plain", key="file")
        ctx.run.result(file)

    @entry
    def question(self, ctx: SyncRunContext) -> object:
        """Ask, and return the answer."""
        return ctx.run.ask({"text": "which?"})

    @entry
    def wait(self, ctx: SyncRunContext) -> None:
        """Work until somebody wants it to end."""
        ctx.run.status("waiting")
        while True:
            ctx.run.check_cancelled()
            time.sleep(0.02)
