"""A server whose entries run in processes with children of their own, for tests that kill them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

from perdure import SyncRunContext, entry, plugin
from perdure.runtime.execution.limits import HostLimits
from tests.crash.killed_program import main

MARK: Final = "perdure-test-grandchild"


def pieces(line: str) -> Iterator[bytes]:
    """Give bytes that no other run has, in several pieces, and take a while."""
    for _ in range(10):
        yield line.encode() * 1000
        time.sleep(0.005)


@plugin("crash")
class Crashing:
    """What is executed while processes are killed."""

    @entry
    def family(self, ctx: SyncRunContext) -> str:
        """Start processes in and out of the group, and work a while in steps."""
        nap = [sys.executable, "-S", "-c", "import time; time.sleep(3000)", MARK]
        subprocess.Popen(nap)
        subprocess.Popen(nap, start_new_session=True)
        for number in range(3):
            ctx.run.step(f"step-{number}", time.sleep, 0.05)
            ctx.run.export_bytes(pieces(f"{ctx.run.id} {number}\n"))
        return "done"


if __name__ == "__main__":
    main(Crashing, ["family"] * 3, HostLimits(runs=3, cancel_grace=0.2))
