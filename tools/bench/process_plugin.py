"""The plugin of the process benchmarks: light, as what a process imports is part of its start."""

from __future__ import annotations

import os
import time

from perdure import SyncRunContext, entry, plugin


@plugin("bench-process")
class Processes:
    """The entries that are measured."""

    @entry
    def nothing(self, ctx: SyncRunContext) -> int:  # noqa: ARG002 - it does nothing
        """Tell which process it is."""
        return os.getpid()

    @entry
    def says(self, ctx: SyncRunContext, messages: int) -> None:
        """Report as fast as it can."""
        for number in range(messages):
            ctx.run.progress(number / messages)

    @entry
    def stays(self, ctx: SyncRunContext) -> None:
        """Stay until it is killed."""
        ctx.run.status("here")
        while True:
            time.sleep(60)
