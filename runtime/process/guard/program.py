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

from . import cgroup
from .descriptors import CONTROL, READ, WRITE, lower
from .keeper import Keeper, shell_status
from .order import Order, ServerGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

NOT_STARTED = 125  # the status of a guard that could not do what it was told
IS_LINUX = sys.platform == "linux"
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
    os.write(2, f"perdure-guard: {error.filename or ''}: {error.strerror or error}\n".encode())
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
        if IS_LINUX:
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                file.write("1000")  # when memory runs out, the kernel ends this and not the server
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
        return Keeper(self._start(), CONTROL).keep()

    def _keep_inside(self) -> int:
        """Start the keeper, the first process inside of namespaces, and wait for it."""
        from .confinement import prepare

        prepare(self._order.namespaces)
        keeper = os.fork()
        if keeper == 0:
            try:
                os._exit(self._be_first())
            except OSError as error:
                _fail(error)
        for descriptor in (READ, WRITE, CONTROL, 1, 2, *self._groups):
            os.close(descriptor)
        return shell_status(os.waitpid(keeper, 0)[1])

    def _be_first(self) -> int:
        """Be the first process inside."""
        from . import confinement, linux

        os.setsid()
        linux.prctl(linux.PARENT_DEATH, _signal.SIGKILL)
        confinement.enter(self._order.namespaces)
        confinement.show_only(self._order.places, self._order.links)
        process = self._start()
        confinement.give_up_privileges()
        linux.prctl(linux.DUMPABLE, 0)  # the process cannot look into its keeper
        return Keeper(process, CONTROL).keep()

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
        cgroup.join(self._groups)
        os.close(CONTROL)
        for number in (*_OF_PYTHON, *_OF_THE_GROUP):
            _signal.signal(number, _signal.SIG_DFL)
        if self._order.namespaces:
            try:
                os.chdir(self._folder)
            except OSError:  # it is not shown
                os.chdir(_LAST_RESORT)
        if self._order.limits or self._order.unprivileged:
            from . import confinement

            confinement.limit(self._order.limits)
            if self._order.unprivileged:
                confinement.give_up_privileges()
        os.execv(self._command[0], self._command)  # noqa: S606 - a command needs no shell
