"""What a process may see and use: namespaces, files, privileges, limits.

The files are a tree of their own, built in memory. Folders of the machine are shown in it, to be
read only unless asked for; all others do not exist there. Nothing of it is left when the last
process inside has ended.
"""

from __future__ import annotations

import os
from resource import RLIM_INFINITY, getrlimit, setrlimit

from . import linux
from .order import NEW_PIDS, NEW_USER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .order import Limits, Links, Places

HELD_BACK = linux.NO_SETUID | linux.NO_DEVICES
SCRATCH = 256 << 20  # bytes that fit into one empty folder
DEVICES = ("null", "zero", "full", "random", "urandom")
_BASE = "/tmp"  # noqa: S108 - where the tree is built before it becomes the root; any folder would do
_OLD, _NEW = "/old", "/new"


def prepare(namespaces: int) -> None:
    """Have the next process that is started be the first one inside of new namespaces.

    In one for users this user is the only one, under the same number.
    """
    uid, gid = os.getuid(), os.getgid()
    linux.unshare(namespaces & (NEW_USER | NEW_PIDS))
    if namespaces & NEW_USER:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")


def enter(namespaces: int) -> None:
    """As the first process inside, enter the namespaces that its guard stays out of."""
    linux.unshare(namespaces & ~(NEW_USER | NEW_PIDS))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def show_only(places: Places, links: Links) -> None:
    """Make a new tree of files the root: these places, parents first, and links between them."""
    linux.mount("", "/", flags=linux.RECURSIVE | linux.PRIVATE)
    linux.mount("perdure", _BASE, "tmpfs", HELD_BACK, "mode=755,size=1m")
    for name in (_OLD, _NEW):
        os.mkdir(_BASE + name, 0o755)
    linux.mount(_BASE + _NEW, _BASE + _NEW, flags=linux.BIND)
    linux.pivot_root(_BASE, _BASE + _OLD)
    os.chdir("/")
    for device in DEVICES:
        _bind(f"/dev/{device}")
    for kind, path in places:
        _place(kind, path)
    os.makedirs(f"{_NEW}/proc", exist_ok=True)
    only_seen = linux.READ_ONLY | linux.NO_PROGRAMS | HELD_BACK
    linux.mount("proc", f"{_NEW}/proc", "proc", only_seen)
    os.chdir(_NEW)
    linux.pivot_root(".", ".")
    linux.detach(".")
    os.chdir("/")
    for path, target in [*links, ("/dev/fd", "/proc/self/fd")]:
        _link(path, target)
    linux.restrict_mount("/", linux.READ_ONLY | HELD_BACK, whole_tree=False)


def _place(kind: str, path: str) -> None:
    target = _NEW + path
    if kind == "scratch":
        os.makedirs(target, exist_ok=True)
        linux.mount("scratch", target, "tmpfs", HELD_BACK, f"mode=1777,size={SCRATCH}")
    elif kind != "hidden":
        _bind(path)
        if path.startswith("/dev/"):
            return
        held_back = HELD_BACK if kind == "write" else HELD_BACK | linux.READ_ONLY
        linux.restrict_mount(target, held_back)
    elif os.path.isdir(target):
        linux.mount("hidden", target, "tmpfs", linux.READ_ONLY | HELD_BACK, "mode=000,size=4k")
    elif os.path.exists(target):
        linux.mount(f"{_OLD}/dev/null", target, flags=linux.BIND)


def _bind(path: str) -> None:
    """Show a file or a folder of the machine where it is."""
    source, target = _OLD + path, _NEW + path
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    linux.mount(source, target, flags=linux.BIND | linux.RECURSIVE)


def _link(path: str, target: str) -> None:
    if os.path.lexists(path):
        return
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
    except OSError:  # it lies in a folder that is shown, where it does not exist
        pass


def give_up_privileges() -> None:
    """Hold no capability, and gain none by starting a program that has some."""
    linux.prctl(linux.NO_NEW_PRIVILEGES, 1)
    linux.drop_capabilities()


def limit(limits: Limits) -> None:
    """Take away what this process, and each that it starts, may take of the system at most."""
    for number, most in limits:
        _, hard = getrlimit(number)
        value = most if hard == RLIM_INFINITY else min(most, hard)
        setrlimit(number, (value, value))
