"""Entries that try to get out of their sandbox, or to take what is everybody's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from perdure import SyncRunContext, entry, plugin
from tests.runtime.process.escape_attempts import ATTEMPTS, Facts

STARTED = time.time_ns()


@plugin("escape", version="1", network=False, memory=200, processes=64)
class Escape:
    """Entries that try to get out, or to take what is everybody's."""

    @entry
    def tries(self, ctx: SyncRunContext, name: str, facts: list[Any]) -> dict[str, str]:
        """Give what an attempt has reached, or why it has failed."""
        data, elsewhere, server, port = facts
        try:
            reached = ATTEMPTS[name](Facts(Path(data), Path(elsewhere), server, port))
        except Exception as error:  # noqa: BLE001 - it has failed
            return {"failed": repr(error)}
        return {"reached": repr(reached)} if reached else {"failed": repr(reached)}

    @entry
    def forks_without_end(self, ctx: SyncRunContext) -> int:
        """Tell how many processes it could start."""
        children = []
        try:
            for _ in range(500):
                child = os.fork()
                if child == 0:
                    time.sleep(300)
                    os._exit(0)
                children.append(child)
        except OSError:
            pass
        return len(children)

    @entry
    def takes_memory(self, ctx: SyncRunContext, processes: int, each: int) -> int:
        """Take memory in several processes at once; tell how many hold it together."""
        heard, told = os.pipe()
        os.set_blocking(heard, False)
        for _ in range(processes):
            if os.fork() == 0:
                held = bytearray(each << 20)
                held[::4096] = b"x" * len(held[::4096])
                os.write(told, os.getpid().to_bytes(4, "big"))
                time.sleep(300)
        got: set[int] = set()
        killed: set[int] = set()
        while len(got | killed) < processes:
            time.sleep(0.01)
            with suppress(BlockingIOError):
                got.add(int.from_bytes(os.read(heard, 4), "big"))
            killed |= {os.waitpid(-1, os.WNOHANG)[0]} - {0}
        return len(got - killed)

    @entry
    def leaves_a_child(self, ctx: SyncRunContext, mark: str) -> None:
        """Leave processes behind, in its group and in none, that go on without it."""
        nap = [sys.executable, "-S", "-c", f"import time; time.sleep(3000)  #{mark}"]
        subprocess.Popen(nap)
        subprocess.Popen(nap, start_new_session=True)
        subprocess.run(["/bin/sh", "-c", 'setsid "$@" & exit', "sh", *nap], check=True)

    @entry
    def leaves_and_dies(self, ctx: SyncRunContext, mark: str) -> None:
        """The same, and be killed."""
        self.leaves_a_child(ctx, mark)
        os.kill(os.getpid(), signal.SIGKILL)

    @entry
    def which(self, ctx: SyncRunContext) -> int:
        """Tell which process this is."""
        return STARTED

    @entry
    def keeps_notes(self, ctx: SyncRunContext, path: str) -> list[str]:
        """Write a file, by default at home, and give what lies beside it."""
        file = Path.home() / path
        file.write_text("note", "utf-8")
        return sorted(beside.name for beside in file.parent.iterdir())
