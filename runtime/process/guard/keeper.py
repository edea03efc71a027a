"""The keeper: the process that waits for another one, and does to it what the server says.

Inside a pid namespace it is the first process: no signal from inside reaches it, and with it ends
everything inside. Elsewhere all that was started below it becomes its child sooner or later, and it
ends that one by one.

The server says one byte at a time: the number of a signal for the process and its group, or
``IS_ALONE``. When the server is gone, or closes its end, all ends.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal takes longer than all of this
import os
import select

IS_ALONE = 0  # asks whether all has ended that the process has started
YES, NO = b"\1", b"\0"
_ROUNDS = 50  # to end processes that start others meanwhile
_PAUSE = 0.002  # seconds between two


class Keeper:
    """Waits for a process, which leads a group."""

    def __init__(self, process: int, control: int) -> None:
        """Hear of ended children through a pipe, so that one wait is for all there is to hear."""
        self._process = process
        self._control = control
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        self._status: int | None = None

    def keep(self) -> int:
        """Serve until the process has ended or the server is gone; give the status, as a shell."""
        self._reap()
        while self._status is None:
            ready, _, _ = select.select([self._control, self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 512)
                self._reap()
            if self._control in ready and not self._obey():
                break
        if os.getpid() != 1:
            self._end_all()
        return 128 + _signal.SIGKILL if self._status is None else self._status

    def _obey(self) -> bool:
        """Do what the server says; tell whether it is still there."""
        try:
            said = os.read(self._control, 512)
        except OSError:
            said = b""
        for number in said:
            if number == IS_ALONE:
                self._reap()
                is_alone = _descendants() in ([self._process], None)
                os.write(self._control, YES if is_alone else NO)
            else:
                self._signal(number)
        return bool(said)

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process, number)
        except ProcessLookupError:
            pass

    def _reap(self) -> None:
        while True:
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if ended == 0:
                return
            if ended == self._process:
                self._status = shell_status(status)

    def _end_all(self) -> None:
        """End all that was started below this process; some of it may start more meanwhile."""
        if self._status is None:
            self._signal(_signal.SIGKILL)
        for _ in range(_ROUNDS):
            for process in (found := _descendants() or []):
                try:
                    os.kill(process, _signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if not found:
                return
            select.select([], [], [], _PAUSE)
            self._reap()


def shell_status(status: int) -> int:
    """Give the status of an ended process as a shell does."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _descendants() -> list[int] | None:
    """Find the processes that were started below this one, also ended ones that nobody awaits.

    None: this system does not tell.
    """
    parents = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return None
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue  # it has just ended
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {os.getpid()})
