"""Entries that misbehave, for tests of what that does to everybody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from perdure import RunCancelled, RunContext, SyncRunContext, entry, plugin
from perdure.runtime.plugins.run_messages import Sleep, Step
from perdure.runtime.process.messages import Did

STARTED = time.time_ns()


def say(line: bytes) -> None:
    """Write to the server, past the kit."""
    os.write(int(os.environ["PERDURE_WRITE_FD"]), line + b"\n")


@plugin("hostile", version="1", memory=1024)
class Hostile:
    """Each entry breaks a rule."""

    @entry
    def fine(self, ctx: SyncRunContext) -> int:
        """Behave; tell which process it is."""
        return STARTED

    @entry
    def die(self, ctx: SyncRunContext, sig: int = 9) -> None:
        """Die in the middle."""
        os.kill(os.getpid(), sig)
        time.sleep(10)

    @entry
    def dies_once(self, ctx: SyncRunContext, note: str) -> None:
        """Note that it was called, and die the first time."""
        called = Path(note)
        first = not called.exists()
        with called.open("a", encoding="utf-8") as file:
            file.write("called\n")
        if first:
            os.kill(os.getpid(), 9)

    @entry(where="process")
    async def dies_once_awaited(self, ctx: RunContext, note: str) -> None:
        """The same, on asyncio."""
        self.dies_once(ctx, note)  # type: ignore[arg-type]

    @entry
    def leave(self, ctx: SyncRunContext, status: int = 3) -> None:
        """Exit without a word."""
        os._exit(status)

    @entry
    def many_values(self, ctx: SyncRunContext, count: int) -> list[list[None]]:
        """Return so many lists."""
        return [[]] * count

    @entry
    def rubbish(
        self, ctx: SyncRunContext, line: str = "rubbish", *, stubborn: bool = False
    ) -> None:
        """Say what is no message; maybe ignore what is asked then."""
        if stubborn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say(line.encode())
        time.sleep(30)

    @entry
    def goes_on(self, ctx: SyncRunContext) -> str:
        """Say what ends the run, and return long after."""
        ctx.run.result(f"{ctx.run.id}.9")
        time.sleep(0.5)
        return "too late"

    @entry
    def hard_of_hearing(self, ctx: SyncRunContext) -> str:
        """Return while an answer is on its way that does not fit into the pipe."""
        heard = threading.Event()

        def slow(_: object) -> None:
            heard.wait()

        port: Any = ctx.run._port
        talk = port._talk
        talk.request(Sleep(seconds=0), slow)
        talk.say(Step(id=1000, name="large"))
        time.sleep(0.5)
        talk.say(Did(id=1000, value="x" * 500_000))
        time.sleep(0.5)
        threading.Timer(0.2, heard.set).start()
        return "done"

    @entry
    def talks_on(self, ctx: SyncRunContext) -> None:
        """Say how another run ends, after this one has."""
        say(b'{"say": "return"}\n{"say": "return", "value": "not yours"}')
        time.sleep(30)

    @entry
    def endless_line(self, ctx: SyncRunContext) -> None:
        """Say a line that never ends."""
        for _ in range(40):
            os.write(int(os.environ["PERDURE_WRITE_FD"]), b"x" * 65536)
        time.sleep(30)

    @entry
    def flood(self, ctx: SyncRunContext, lines: int = 200_000) -> str:
        """Print and report as fast as possible."""
        for number in range(lines):
            print("x" * 100)  # noqa: T201 - the point
            if number % 10 == 0:
                ctx.run.progress(number / lines)
        return "done"

    @entry
    def floods(self, ctx: SyncRunContext) -> None:
        """Print without end."""
        while True:
            print("x" * 2000)  # noqa: T201 - the point

    @entry
    def eats_memory(self, ctx: SyncRunContext) -> int:
        """Take more memory than there may be."""
        return len(bytearray(4 << 30))

    @entry
    def forks(self, ctx: SyncRunContext) -> str:
        """Fork, and let both go on."""
        if os.fork() == 0:
            time.sleep(3000)
        return "parent"

    @entry
    def behaves(self, ctx: SyncRunContext, ref: str = "") -> None:
        """Refer to an item, obey in a group."""
        own = ctx.run.export_text("own")
        ctx.run.export_id(own)
        if ref:
            ctx.run.export_id(ref)

    @entry
    def obeys_in_a_group(self, ctx: SyncRunContext) -> None:
        """Wait for a cancel request, and wrap it."""
        ctx.run.status("waiting")
        while True:
            try:
                ctx.run.check_cancelled()
            except RunCancelled as error:
                raise ExceptionGroup("wrapped", [error]) from None
            time.sleep(0.01)

    @entry
    def stubborn(self, ctx: SyncRunContext) -> None:
        """Ignore everything, with children in and out of the group."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        nap = [sys.executable, "-S", "-c", f"import time; time.sleep(3000) #{ctx.run.id}"]
        subprocess.Popen(nap)
        subprocess.Popen(nap, start_new_session=True)
        ctx.run.status("deaf")
        while True:
            time.sleep(1)

    @entry
    def alone(self, ctx: SyncRunContext, namespace: str = "") -> None:
        """Kill all that can be seen, and be nobody who would hear that the server is gone."""
        if str(Path("/proc/self/ns/pid").readlink()) != namespace:  # else: the whole machine
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        nap = [sys.executable, "-S", "-c", f"import time; time.sleep(3000) #{ctx.run.id}"]
        subprocess.Popen(nap, start_new_session=True)
        ctx.run.status("deaf")
        time.sleep(0.2)
        os.execv(sys.executable, nap)  # noqa: S606 - the same without us

    @entry
    def badness(self, ctx: SyncRunContext) -> int:
        """Tell how gladly the kernel would end this process."""
        return int(Path("/proc/self/oom_score_adj").read_text("ascii"))

    @entry
    def cleans_up(self, ctx: SyncRunContext) -> None:
        """Take a while to end, once asked by a signal."""

        def clean(*_: object) -> None:
            time.sleep(0.3)
            print("cleaned", flush=True)  # noqa: T201 - a line of the run's log
            os._exit(0)

        signal.signal(signal.SIGTERM, clean)
        ctx.run.status("deaf")
        while True:
            time.sleep(1)

    @entry(timeout=0.5)
    def late(self, ctx: SyncRunContext) -> None:
        """Print, and take longer than it may."""
        print("printed")  # noqa: T201 - a line of the run's log
        while True:
            time.sleep(1)

    @entry(where="thread")
    def thread(self, ctx: SyncRunContext, seconds: float = 0.0) -> str:
        """Work in a thread."""
        ctx.run.progress(0.25)
        value = ctx.run.step("s", lambda: "stepped")
        ctx.run.status("asleep")
        time.sleep(seconds)
        ctx.run.export_text("after the sleep")
        return value

    @entry
    async def blocks(self, ctx: RunContext, seconds: float = 1.5) -> None:
        """Block the event loop."""
        time.sleep(seconds)  # noqa: ASYNC251 - the point
