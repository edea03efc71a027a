"""A worker: one process, the pipes to it, and the certainty that it ends."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import termios
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from perdure.runtime.kernel.variables import CODE, READ_FD, WRITE_FD
from perdure.runtime.process.file_view import SCRATCH
from perdure.runtime.process.guard.descriptors import READ, WRITE
from perdure.runtime.process.guard.keeper import IS_ALONE, YES
from perdure.runtime.process.line_splitter import LineSplitter
from perdure.runtime.process.messages import MAX_LINE, to_line
from perdure.runtime.process.sandbox_features import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.eventlog.env import Env, Process
    from perdure.runtime.plugins.plugin import Program
    from perdure.runtime.process.guard.order import Order
    from perdure.runtime.process.line_splitter import Line

CHUNK: Final = 64 << 10
LONGEST: Final = 64 << 10  # bytes of a line that is printed; the rest of it is dropped
LAST_OUTPUT: Final = 1.0  # seconds for what an ended process has printed to arrive
LINGER: Final = 0.01  # seconds between two looks whether all was read
PATIENCE: Final = 5.0  # seconds for a guard to do what it is told; it takes milliseconds
INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")


class Worker:
    """A process that executes runs, one at a time."""

    def __init__(
        self,
        process: Process,
        to_it: trio.abc.SendStream,
        from_it: trio.abc.ReceiveStream,
        control: trio.lowlevel.FdStream,
    ) -> None:
        """Own a process that was just started, its pipes and the socket to its guard."""
        self._process = process
        self._to_it = to_it
        self._from_it = from_it
        self._control = control
        self._lines = LineSplitter(MAX_LINE, too_long="refuse")
        self._pending: list[Line] = []
        self._sending = trio.Lock()
        self._is_speaking = False
        self._printed = {
            level: LineSplitter(LONGEST, too_long="cut") for level in ("info", "warning")
        }
        self.on_output: Callable[[str, Line], None] = lambda _level, _line: None

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
        """Have a signal sent to the process and to all in its group."""
        with suppress(OSError):  # its guard has ended with it
            os.write(self._control.fileno(), bytes([number]))

    async def instruct(self, order: Order) -> None:
        """Tell the guard how to start the process."""
        with suppress(trio.BrokenResourceError):  # it has ended, and so has the process
            await self._control.send_all(order.encode())

    async def is_alone(self) -> bool:
        """Ask whether all has ended that the process has started."""
        answer = b""
        with trio.move_on_after(PATIENCE), suppress(trio.BrokenResourceError):
            await self._control.send_all(bytes([IS_ALONE]))
            answer = await self._control.receive_some(1)
        return answer == YES

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
            await trio.aclose_forcefully(self._control)  # the guard ends everything now
            with trio.move_on_after(PATIENCE):
                await self._process.wait()
            if self.is_alive:
                os.killpg(self._process.pid, signal.SIGKILL)  # what is inside ends with its guard
                await self._process.wait()
            await trio.aclose_forcefully(self._to_it)
            await trio.aclose_forcefully(self._from_it)


_SHELL_SIGNAL: Final = 128  # a shell reports a signal as its number and this


async def start_worker(env: Env, command: Sequence[str], program: Program, order: Order) -> Worker:
    """Start a process under a guard, with pipes to and from it."""
    with ExitStack() as ours, ExitStack() as theirs:
        read_there, write_here = _pipe(theirs, ours)
        read_here, write_there = _pipe(ours, theirs)
        control_here, control_there = _socket_pair(ours, theirs)
        fds = (read_there, write_there, control_there)
        process = await env.open_process(
            guarded(command, fds),
            stdin=-3,  # subprocess.DEVNULL
            stdout=-1,  # subprocess.PIPE
            stderr=-1,
            pass_fds=fds,
            start_new_session=True,
            cwd=program.folder,
            env=_environment(program, order),
        )
        ours.pop_all()  # they are the worker's now
    worker = Worker(
        process,
        trio.lowlevel.FdStream(write_here),
        trio.lowlevel.FdStream(read_here),
        trio.lowlevel.FdStream(control_here),
    )
    try:
        await worker.instruct(order)
    except BaseException:
        await worker.end()
        raise
    return worker


def _environment(program: Program, order: Order) -> dict[str, str]:
    """Give the variables of a process: few of the server's, and where its pipes are."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    if order.namespaces:
        inherited["TMPDIR"] = SCRATCH[0]
    own = {READ_FD: str(READ), WRITE_FD: str(WRITE), CODE: program.code or ""}
    return {**inherited, **own}


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


def _socket_pair(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    """Make two connected sockets, each closed with its owner."""
    here, there = (end.detach() for end in socket.socketpair())
    ours.callback(os.close, here)
    theirs.callback(os.close, there)
    return here, there
