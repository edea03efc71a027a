"""A worker: one process, the pipes to it, and the certainty that it ends."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from perdure.runtime.kernel.variables import CODE, MEMORY, READ_FD, WRITE_FD
from perdure.runtime.process.descriptors import READ, WRITE
from perdure.runtime.process.line_splitter import LineSplitter
from perdure.runtime.process.messages import MAX_LINE, to_line
from perdure.runtime.process.sandbox import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.eventlog.env import Env, Process
    from perdure.runtime.plugins.plugin import Program
    from perdure.runtime.process.line_splitter import Line
    from perdure.runtime.process.sandbox import SandboxFeatures

CHUNK: Final = 64 << 10
LONGEST: Final = 64 << 10  # bytes of a line that is printed; the rest of it is dropped
LAST_OUTPUT: Final = 1.0  # seconds for what an ended process has printed to arrive
LINGER: Final = 0.01  # seconds between two looks whether all was read
INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")


class Worker:
    """A process that executes runs, one at a time."""

    def __init__(
        self,
        process: Process,
        to_it: trio.abc.SendStream,
        from_it: trio.abc.ReceiveStream,
        guard: int,
    ) -> None:
        """Own a process that was just started, its pipes and the guard's."""
        self._process = process
        self._to_it = to_it
        self._from_it = from_it
        self._guard: int | None = guard
        self._lines = LineSplitter(MAX_LINE, too_long="refuse")
        self._pending: list[Line] = []
        self._sending = trio.Lock()
        self._is_speaking = False
        self._printed = {
            level: LineSplitter(LONGEST, too_long="cut") for level in ("info", "warning")
        }
        self.on_output: Callable[[str, Line], None] = lambda _level, _line: None

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended, as far as the system has told."""
        return self._process.returncode is None

    @property
    def can_go_on(self) -> bool:
        """Whether a talk has ended with whole lines on both sides, so that another can begin."""
        return not (self._is_speaking or self._pending or self._lines.is_within_a_line)

    async def send(self, message: Any) -> None:  # noqa: ANN401 - a message, or its parts
        """Say something to the process; one that has ended does not hear it."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            line = to_line(message)
            async with self._sending:
                self._is_speaking = True
                await self._to_it.send_all(line)
                self._is_speaking = False

    async def receive(self) -> bytes | None:
        """Give the next line that the process says; None when it says no more."""
        while not self._pending:
            try:
                data = await self._from_it.receive_some(CHUNK)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                return None
            self._pending = self._lines.feed(data)[::-1]
        return self._pending.pop().data

    async def pump(self) -> None:
        """Turn what the process prints into lines, until it closes both."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hang_up)
            for stream, level in (
                (self._process.stdout, "info"),
                (self._process.stderr, "warning"),
            ):
                if stream is not None:
                    nursery.start_soon(self._pump, stream, level)

    async def _hang_up(self) -> None:
        """Hear a process that has ended to its last word; what it left behind says nothing."""
        await self._process.wait()
        while _unread(self._from_it):  # noqa: ASYNC110 - somebody else reads it
            await trio.sleep(LINGER)
        await trio.aclose_forcefully(self._from_it)

    async def _pump(self, stream: trio.abc.ReceiveStream, level: str) -> None:
        while True:
            try:
                data = await stream.receive_some(CHUNK)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if not data:
                break
            self._show(level, self._printed[level].feed(data))
        self._show(level, self._printed[level].take_rest())

    def _show(self, level: str, lines: list[Line]) -> None:
        for line in lines:
            self.on_output(level, line)

    async def drained(self) -> None:
        """Wait until all that the process has printed so far has been read, to the last byte."""
        outputs = [stream for stream in (self._process.stdout, self._process.stderr) if stream]
        with trio.move_on_after(LAST_OUTPUT):
            while any(map(_unread, outputs)):  # noqa: ASYNC110 - the pump is elsewhere
                await trio.sleep(0.001)
            await trio.lowlevel.checkpoint()
        for level, printed in self._printed.items():
            self._show(level, printed.take_rest())

    # Its end

    async def wait(self) -> int:
        """Wait for the end of the process; give its status, negative for a signal."""
        status = await self._process.wait()
        return _SHELL_SIGNAL - status if status > _SHELL_SIGNAL else status

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to everything that the process has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def ended_or(self, hurry: trio.Event) -> None:
        """Wait for the end of the process, or until somebody is in a hurry."""
        async with trio.open_nursery() as nursery:

            async def stop_waiting() -> None:
                await hurry.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(stop_waiting)
            await self._process.wait()
            nursery.cancel_scope.cancel()

    async def end(self) -> None:
        """Kill the process and all it has started. Reaps it."""
        with trio.CancelScope(shield=True):
            self.signal(signal.SIGKILL)
            if self._guard is not None:
                os.close(self._guard)  # whatever is left under the guard ends with it
                self._guard = None
            await self._process.wait()
            await trio.aclose_forcefully(self._to_it)
            await trio.aclose_forcefully(self._from_it)


_SHELL_SIGNAL: Final = 128  # a shell reports a signal as its number and this


async def start_worker(
    env: Env, command: Sequence[str], program: Program, features: SandboxFeatures
) -> Worker:
    """Start a process under a guard, with pipes to and from it."""
    with ExitStack() as ours, ExitStack() as theirs:
        read_there, write_here = _pipe(theirs, ours)
        read_here, write_there = _pipe(ours, theirs)
        guard_there, guard_here = _pipe(theirs, ours)
        fds = (read_there, write_there, guard_there)
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        process = await env.open_process(
            guarded(tuple(command), fds, features, network=program.network),
            stdin=-3,  # subprocess.DEVNULL
            stdout=-1,  # subprocess.PIPE
            stderr=-1,
            pass_fds=fds,
            start_new_session=True,
            cwd=program.folder,
            env={
                **inherited,
                READ_FD: str(READ),
                WRITE_FD: str(WRITE),
                MEMORY: "" if program.memory is None else str(program.memory << 10),
                CODE: program.code or "",
            },
        )
        ours.pop_all()  # they are the worker's now
    return Worker(
        process,
        trio.lowlevel.FdStream(write_here),
        trio.lowlevel.FdStream(read_here),
        guard_here,
    )


def _unread(stream: trio.abc.ReceiveStream) -> int:
    """Tell how many bytes wait in a pipe."""
    assert isinstance(stream, trio.lowlevel.FdStream)  # noqa: S101 - all of them are
    try:
        waiting = fcntl.ioctl(stream.fileno(), termios.FIONREAD, bytes(4))
    except (OSError, ValueError):  # it is closed
        return 0
    return int.from_bytes(waiting, sys.byteorder)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Make a pipe whose ends are closed with their owners."""
    read, write = os.pipe()
    reader.callback(os.close, read)
    writer.callback(os.close, write)
    return read, write
