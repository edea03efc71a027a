"""A program that executes one long run and says when its entry is called.

ACK called      the entry is being executed, in this life
"""

from __future__ import annotations

import os
import sys

import trio

from perdure import RunContext, entry, plugin
from tests.crash.killed_program import main


@plugin("crash")
class Long:
    """What is executed while the process is killed."""

    @entry
    async def climb(self, ctx: RunContext) -> None:
        """Report progress, from the beginning whenever it is called."""
        os.write(1, b"ACK called\n")
        for number in range(60):
            ctx.run.progress(number / 60)
            await trio.sleep(0.05)

    @entry
    async def one_step(self, ctx: RunContext) -> None:
        """Do one long step, and say nothing meanwhile."""
        os.write(1, b"ACK called\n")
        await ctx.run.step("long", trio.sleep, 3)


if __name__ == "__main__":
    main(Long, [sys.argv[2]])
