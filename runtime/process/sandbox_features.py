"""What the system lets us enforce for processes, found by trying, and how they are started so.

It is asked by the server and by `perdure doctor`, which has no event loop.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess  # noqa: TID251 - waited for in a thread, or by a command
import sys
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from perdure.runtime.plugins.plugin import Program
from perdure.runtime.process import guard
from perdure.runtime.process.control_groups import NO_GROUPS, ControlGroups, find_control_groups
from perdure.runtime.process.file_view import view_of, without_hiding
from perdure.runtime.process.guard.order import (
    NEW_MOUNTS_IPC,
    NEW_NETWORK,
    NEW_PIDS,
    NEW_USER,
    Order,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

DESCRIPTORS: Final = 4096  # that a process may have open
PROCESSES: Final = 512  # that it may have started at once, threads among them
_FOLDER: Final = str(Path(guard.__file__).parent.parent)
_START: Final = (
    "import sys; sys.path.append(sys.argv[1]); from guard.program import main; main()"
    "  # perdure-guard"
)
_LONGEST: Final = 10.0  # seconds for a guard that is tried
EVERYTHING: Final = Program(network=False, memory=1)  # asks for all that can be enforced


class Guarantee(NamedTuple):
    """Something that a sandbox promises, and whether that is enforced here."""

    name: str
    is_enforced: bool
    promise: str
    gap: str  # what holds instead, if it is not
    remedy: str


@dataclass(frozen=True, slots=True)
class SandboxFeatures:
    """What the system lets us do."""

    namespaces: int = 0  # to start processes in, without that of the network
    network: bool = False  # whether they can have a network of their own
    groups: ControlGroups = NO_GROUPS
    landlock: bool = False  # whether files can be closed off without
    trouble: str = ""  # why there are no namespaces

    @property
    def counts_processes(self) -> bool:
        """Whether the number of processes can be limited.

        The limit of a user counts those inside of a user namespace, but root has none.
        """
        by_user = self.namespaces & NEW_USER and os.geteuid() != 0
        return bool(self.groups.pids or by_user)

    def guarantees(self) -> list[Guarantee]:
        """Tell what is enforced here, and what is not."""
        lacks = "a process reaches files and processes of the server"
        if self.landlock:
            lacks = "a process sees which files and processes there are, but opens only its own"
        delegate = "give the server a control group of its own (systemd: Delegate=yes)"
        return [
            Guarantee(
                "isolation",
                bool(self.namespaces),
                "a process sees its own files and processes only, and has no privileges",
                f"{lacks} ({self.trouble})",
                "allow user namespaces, or start the server as root with CAP_SYS_ADMIN",
            ),
            Guarantee(
                "network",
                self.network,
                "`network = false` closes a process off",
                "`network = false` has no effect",
                "allow network namespaces",
            ),
            Guarantee(
                "processes",
                self.counts_processes,
                "their number is limited",
                "their number is not limited",
                delegate,
            ),
            Guarantee(
                "memory",
                self.groups.memory is not None,
                "`memory` limits all processes of a run together",
                "`memory` limits each process, not all of a run together",
                delegate,
            ),
        ]

    def gaps(self, program: Program) -> list[Guarantee]:
        """Tell what a program needs that is not enforced here."""
        needless = {"network": program.network, "memory": program.memory is None}
        return [
            guarantee
            for guarantee in self.guarantees()
            if not (guarantee.is_enforced or needless.get(guarantee.name, False))
        ]

    def order(self, program: Program, command: Sequence[str], hidden: Sequence[Path]) -> Order:
        """Say how a program is to be started: as closed off as is possible here."""
        processes = program.processes or PROCESSES
        limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, DESCRIPTORS)]
        if self.groups.memory is None:
            limits += memory_limit(program)
        if self.groups.pids is None and self.counts_processes:
            limits.append((resource.RLIMIT_NPROC, processes))
        memory = None if program.memory is None else program.memory << 20
        order = Order(
            limits=limits,
            groups=self.groups.limits(memory, processes),
            unprivileged=sys.platform == "linux",
        )
        if self.namespaces:
            closed = NEW_NETWORK if self.network and not program.network else 0
            order.namespaces = self.namespaces | closed
            order.places, order.links = view_of(program, command, hidden)
        elif self.landlock:
            order.restricted = True
            order.places = without_hiding(view_of(program, command, hidden))
        return order


@lru_cache(maxsize=1)
def features() -> SandboxFeatures:
    """Find out what works here, by trying. This waits for processes: call it in a thread."""
    if sys.platform != "linux":
        return SandboxFeatures(trouble=f"{sys.platform} has no namespaces")
    trouble = ""
    for way in (NEW_PIDS | NEW_MOUNTS_IPC | NEW_USER, NEW_PIDS | NEW_MOUNTS_IPC):
        for network in (True, False):
            trouble = _tried(SandboxFeatures(way | NEW_NETWORK if network else way))
            if not trouble:
                return SandboxFeatures(way, network, find_control_groups())
    landlock = not _tried(SandboxFeatures(landlock=True))
    return SandboxFeatures(groups=find_control_groups(), landlock=landlock, trouble=trouble)


def _tried(wanted: SandboxFeatures) -> str:
    """Start a program so; tell why that is impossible, if it is."""
    command = [shutil.which("true") or "/bin/true"]
    order = wanted.order(Program(), command, ())
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        ours.sendall(order.encode())
        fds = (theirs.fileno(),) * 3
        try:
            done = subprocess.run(  # noqa: S603 - a fixed command
                guarded(command, fds),
                check=False,
                capture_output=True,
                timeout=_LONGEST,
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return "it takes too long"
    return done.stderr.strip() or f"status {done.returncode}" if done.returncode else ""


def guarded(command: Sequence[str], fds: tuple[int, int, int]) -> list[str]:
    """Give the command that starts another under a guard.

    It is passed the descriptors to read, to write, and of the guard's socket, whatever their
    numbers.
    """
    numbers = ",".join(map(str, fds))
    return [sys.executable, "-I", "-S", "-c", _START, _FOLDER, numbers, *command]


def memory_limit(program: Program) -> list[tuple[int, int]]:
    """Give the limit of memory as one for each process."""
    return [] if program.memory is None else [(resource.RLIMIT_AS, program.memory << 20)]
