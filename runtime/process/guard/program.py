"""The guard: starts a process as closed off as it was told to, and stays until it has ended.

It is started with the numbers of three descriptors and with the command; on the third, the control
socket, it gets an order. With a pid namespace it starts a keeper inside; without one it is the
keeper itself. It stands outside of what it closes off, in a process group of its own: nothing
inside can reach it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal takes longer than all of this
import os
import sys
from errno import ENOEXEC

from . import cgroup
from .descriptors import CONTROL, READ, WRITE, lower
from .keeper import Keeper, shell_status
from .kernel_file import write
from .order import Order, ServerGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

NOT_STARTED = 125  # the status of a guard that could not do what it was told
IS_LINUX = sys.platform == "linux"
_SHELL = "/bin/sh"
_QUOTES = '"\\'
_LAST_RESORT = "/tmp"  # noqa: S108 - an empty folder of its own
_OF_PYTHON = (_signal.SIGPIPE, _signal.SIGXFSZ)  # ignored by Python; what comes after it would too
_OF_THE_GROUP = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP)  # the command has its own group


def main() -> None:
    """Start a command and wait for its end; end as it did, seen from outside."""
    lower([int(fd) for fd in sys.argv[2].split(",")])
    for number in _OF_THE_GROUP:
        _signal.signal(number, _signal.SIG_IGN)
    os.environ.pop("LC_CTYPE", None)  # Python sets it where nobody has said which language
    try:
        os._exit(_Guard(Order.receive(CONTROL), sys.argv[3:]).keep())
    except OSError as error:
        _fail(error)
    except ServerGone:
        os._exit(NOT_STARTED)


def _fail(error: OSError) -> NoReturn:
    """Say why there is no command, as a process says that its entry failed, and end."""
    told = f"{error.filename or 'it'} cannot be used: {error.strerror or error}"
    told = "".join(c if c.isprintable() and c not in _QUOTES else "?" for c in told)
    raised = f'{{"say": "raise", "error": {{"code": "PLUGIN_NOT_STARTED", "message": "{told}"}}}}'
    for descriptor, line in ((WRITE, raised), (2, f"perdure-guard: {told}")):
        try:
            os.write(descriptor, f"{line}\n".encode())
        except OSError:  # it is closed, or nobody hears it
            pass
    os._exit(NOT_STARTED)


class _Guard:
    """One process to start and to wait for."""

    def __init__(self, order: Order, command: list[str]) -> None:
        self._order = order
        self._command = command
        self._folder = os.getcwd()
        self._groups: list[int] = []

    def keep(self) -> int:
        """Have the command executed; give its status."""
        # When memory runs out, the kernel is to end this and not the server.
        write("/proc/self/oom_score_adj", "1000")
        try:
            self._groups = cgroup.make(self._order.groups)
            return self._keep_inside() if self._order.namespaces else self._keep_outside()
        finally:
            cgroup.remove(self._order.groups)

    def _keep_outside(self) -> int:
        """Be the keeper; all that is started below becomes a child of this process."""
        if IS_LINUX:
            from . import linux

            linux.prctl(linux.SUBREAPER, 1)
        if not self._order.restricted:
            return Keeper(self._start(), CONTROL).keep()

        from .scratch import Scratch

        scratch = Scratch()
        try:
            self._order.places.append(("write", scratch.folder))
            os.environ.update(TMPDIR=scratch.folder, HOME=scratch.folder)
            return Keeper(self._start(), CONTROL).keep()
        finally:
            scratch.remove()

    def _keep_inside(self) -> int:
        """Start the keeper, the first process inside of namespaces, and wait for it."""
        from .confinement import prepare

        prepare(self._order.namespaces)
        ready, go = os.pipe()
        keeper = os.fork()
        if keeper == 0:
            try:
                os._exit(self._be_first(ready))
            except OSError as error:
                _fail(error)
        cgroup.put(keeper, self._groups)  # while it builds its tree of files
        os.write(go, b"!")
        for descriptor in (READ, WRITE, CONTROL, 1, 2, ready, go):
            os.close(descriptor)
        return shell_status(os.waitpid(keeper, 0)[1])

    def _be_first(self, ready: int) -> int:
        """Be the first process inside; start the command when it is in its groups."""
        from . import confinement, linux

        os.setsid()
        linux.prctl(linux.PARENT_DEATH, _signal.SIGKILL)
        confinement.enter(self._order.namespaces)
        confinement.show_only(self._order.places, self._order.links)
        confinement.give_up_privileges()
        linux.prctl(linux.DUMPABLE, 0)  # the command cannot look into its keeper
        os.read(ready, 1)
        for descriptor in (ready, *self._groups):
            os.close(descriptor)
        return Keeper(self._start(), CONTROL).keep()

    def _start(self) -> int:
        """Start the command, in a process group of its own; give its process."""
        process = os.fork()
        if process == 0:
            try:
                self._become_command()
            except OSError as error:
                _fail(error)
        for descriptor in (READ, WRITE, 1, 2):
            os.close(descriptor)
        try:
            os.setpgid(process, process)
        except OSError:  # it was quicker, and is another program by now
            pass
        return process

    def _become_command(self) -> NoReturn:
        os.setpgid(0, 0)
        os.close(CONTROL)
        for number in (*_OF_PYTHON, *_OF_THE_GROUP):
            _signal.signal(number, _signal.SIG_DFL)
        if not self._order.namespaces:
            cgroup.put(0, self._groups)
        else:
            try:
                os.chdir(self._folder)
            except OSError:  # it is not shown
                os.chdir(_LAST_RESORT)
        if self._order.limits or self._order.unprivileged:
            from . import confinement

            confinement.limit(self._order.limits)
            if self._order.unprivileged and not self._order.namespaces:
                confinement.give_up_privileges()
        if self._order.restricted:
            from . import landlock

            landlock.restrict(self._order.places)
        try:
            os.execv(self._command[0], self._command)  # noqa: S606 - a command needs no shell
        except OSError as error:
            if error.errno != ENOEXEC:
                raise OSError(error.errno, error.strerror, self._command[0]) from None
            os.execv(_SHELL, [_SHELL, *self._command])  # noqa: S606 - a script without a first line
