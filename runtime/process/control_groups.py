"""Where the server may make control groups, by which processes are limited together.

There are two layouts: one hierarchy for each controller (version 1), or one for all (version 2). In
the second only a group without processes of its own can have limited groups inside: if it is alone
there, the server moves into a group below.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from perdure.runtime.process.guard.cgroup import PREFIX

_CONTROLLERS: Final = ("memory", "pids")
_ENABLED: Final = "cgroup.subtree_control"


class ControlGroups(NamedTuple):
    """A folder for each controller; None where there is none to be had."""

    memory: str | None = None
    pids: str | None = None
    is_unified: bool = False  # version 2

    def limits(self, memory: int | None, processes: int) -> list[tuple[str, dict[str, str]]]:
        """Give the groups to make, with these limits: bytes of memory, number of processes."""
        groups: dict[str, dict[str, str]] = {}
        if self.pids is not None:
            groups.setdefault(self.pids, {})["pids.max"] = str(processes)
        if self.memory is not None and memory is not None:
            names = {
                True: {"memory.max": str(memory), "memory.swap.max": "0", "memory.oom.group": "1"},
                False: dict.fromkeys(
                    ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), str(memory)
                ),
            }
            groups.setdefault(self.memory, {}).update(names[self.is_unified])
        return list(groups.items())


NO_GROUPS: Final = ControlGroups()


def find_control_groups(proc: Path = Path("/proc/self")) -> ControlGroups:
    """Find where groups can be made, by trying; remove what killed guards left there."""
    try:
        own = [line.split(":", 2) for line in (proc / "cgroup").read_text("utf-8").splitlines()]
        mounts = _mounts((proc / "mountinfo").read_text("utf-8"))
    except FileNotFoundError:
        return NO_GROUPS
    folders = {
        name: _folder(mounts, name, path)
        for _, names, path in own
        for name in names.split(",")
        if name in {*_CONTROLLERS, ""}
    }
    if not folders.keys().isdisjoint(_CONTROLLERS):
        memory, pids = (folders.get(name) for name in _CONTROLLERS)
        return ControlGroups(memory if _can(memory) else None, pids if _can(pids) else None)
    unified = folders.get("")
    if unified is not None and _has_controllers(Path(unified)) and _can(unified):
        return ControlGroups(unified, unified, is_unified=True)
    return NO_GROUPS


def _mounts(text: str) -> dict[str, tuple[str, str]]:
    """Give for each controller, "" for version 2, what is mounted and where."""
    found = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        root, place = before.split()[3:5]
        kind, _, options = after.split(" ", 2)
        names = [""] if kind == "cgroup2" else options.split(",") if kind == "cgroup" else []
        found.update(dict.fromkeys(names, (root, place)))
    return found


def _folder(mounts: dict[str, tuple[str, str]], name: str, path: str) -> str | None:
    """Give the folder of a group, if it is within what is mounted."""
    root, place = mounts.get(name, ("", ""))
    inside = path.removeprefix(root.rstrip("/"))
    if not place or not (inside == "" or inside.startswith("/")):
        return None
    return (place + inside).rstrip("/")


def _can(folder: str | None) -> bool:
    """Try to make a group; remove those of guards that are no more."""
    if folder is None:
        return False
    tried = Path(folder) / f"{PREFIX}{os.getpid()}"
    try:
        tried.mkdir()
        tried.rmdir()
    except OSError:
        return False
    for left in Path(folder).glob(f"{PREFIX}*"):
        if not Path("/proc", left.name.removeprefix(PREFIX)).exists():
            with suppress(OSError):
                left.rmdir()
    return True


def _has_controllers(group: Path) -> bool:
    """Have a group of version 2 pass its controllers on to the groups inside of it."""
    below, own = group / f"{PREFIX}server-{os.getpid()}", str(os.getpid())
    try:
        if _enabled(group).issuperset(_CONTROLLERS):
            return True
        below.mkdir()
        (below / "cgroup.procs").write_text(own, "ascii")
    except OSError:
        return False
    try:
        (group / _ENABLED).write_text("".join(f"+{name} " for name in _CONTROLLERS), "ascii")
    except OSError:  # somebody else is in the group
        with suppress(OSError):
            (group / "cgroup.procs").write_text(own, "ascii")
            below.rmdir()
        return False
    return True


def _enabled(group: Path) -> frozenset[str]:
    return frozenset((group / _ENABLED).read_text("ascii").split())
