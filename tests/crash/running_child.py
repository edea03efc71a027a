"""A program that executes runs and counts the bodies of their steps in a file."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from pathlib import Path
from typing import Final

import trio

from perdure import RunContext, entry, plugin
from tests.crash.killed_program import main

IN_FLIGHT: Final = 200
STEPS: Final = 3
BODIES: Final = "bodies"  # "life run step" for each body of a step that was begun


@plugin("crash")
class Crashing:
    """What is executed while the process is killed."""

    @cached_property
    def _bodies(self) -> int:
        """Where to count, outside of the log: in the directory of this life."""
        return os.open(Path(sys.argv[1]) / BODIES, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @entry
    async def steps(self, ctx: RunContext) -> str:
        """Do steps, with an export after each."""
        for number in range(STEPS):

            async def body(number: int = number) -> int:
                os.write(self._bodies, f"{os.getpid()} {ctx.run.id} {number}\n".encode())
                await trio.sleep(0.02)
                return number

            await ctx.run.step(f"step-{number}", body)
            await ctx.run.export_text("did a step")
        return "done"

    @entry
    async def plain(self, ctx: RunContext) -> None:
        """Export without any step."""
        for number in range(STEPS):
            await ctx.run.export_text(f"plain {number % 2}")
            await trio.sleep(0.02)


if __name__ == "__main__":
    main(Crashing, ["steps", "plain"] * (IN_FLIGHT // 2))
