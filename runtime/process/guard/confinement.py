"""What a process may see and use: namespaces, files, privileges, limits.

The files are a tree of their own, built in memory. Folders of the machine are shown in it, to be
read only unless asked for; all others do not exist there. Nothing of it is left when the last
process inside has ended.
"""

from __future__ import annotations

import os
from resource import RLIM_INFINITY, getrlimit, setrlimit

from . import linux
from .kernel_file import write
from .order import DEVICES, NEW_PIDS, NEW_USER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .order import Limits, Links, Places

HELD_BACK = linux.NO_SETUID | linux.NO_DEVICES
SCRATCH = 256 << 20  # bytes that fit into one empty folder
_BASE = "/tmp"  # noqa: S108 - where the tree is built before it becomes the root; any folder would do
_MACHINE = "/.machine"  # where all files of the machine are meanwhile


def prepare(namespaces: int) -> None:
    """Have the next process that is started be the first one inside of new namespaces.

    In one for users this user is the only one, under the same number.
    """
    uid, gid = os.getuid(), os.getgid()
    linux.unshare(namespaces & (NEW_USER | NEW_PIDS))
    if namespaces & NEW_USER:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{uid} {uid} 1")
        write("/proc/self/gid_map", f"{gid} {gid} 1")
        try:
            write("/proc/sys/user/max_user_namespaces", "0")  # inside of this one
        except OSError:  # nothing can be set here; what is inside gains no right over our mounts
            pass


def enter(namespaces: int) -> None:
    """As the first process inside, enter the namespaces that its guard stays out of."""
    linux.unshare(namespaces & ~(NEW_USER | NEW_PIDS))


def show_only(places: Places, links: Links) -> None:
    """Make a new tree of files the root: these places, parents first, and links between them."""
    linux.mount("", "/", flags=linux.RECURSIVE | linux.PRIVATE)
    linux.mount("perdure", _BASE, "tmpfs", HELD_BACK, "mode=755,size=1m")
    os.mkdir(_BASE + _MACHINE)
    linux.pivot_root(_BASE, _BASE + _MACHINE)
    os.chdir("/")
    for device in DEVICES:
        _bind(f"/dev/{device}")
    for kind, path in places:
        _place(kind, path)
    os.makedirs("/proc", exist_ok=True)
    linux.mount("proc", "/proc", "proc", linux.READ_ONLY | linux.NO_PROGRAMS | HELD_BACK)
    linux.detach(_MACHINE)
    os.rmdir(_MACHINE)
    for path, target in [*links, ("/dev/fd", "/proc/self/fd")]:
        _link(path, target)
    linux.restrict_mount("/", linux.READ_ONLY | HELD_BACK, whole_tree=False)


def _place(kind: str, path: str) -> None:
    if kind == "scratch":
        os.makedirs(path, exist_ok=True)
        linux.mount("scratch", path, "tmpfs", HELD_BACK, f"mode=1777,size={SCRATCH}")
    elif kind != "hidden":
        _bind(path)
        if not path.startswith("/dev/"):
            more = linux.READ_ONLY if kind == "read" else 0
            linux.restrict_mount(path, HELD_BACK | more)
    elif os.path.isdir(path):
        linux.mount("hidden", path, "tmpfs", linux.READ_ONLY | HELD_BACK, "mode=000,size=4k")
    elif os.path.exists(path):
        linux.mount(f"{_MACHINE}/dev/null", path, flags=linux.BIND)


def _bind(path: str) -> None:
    """Show a file or a folder of the machine where it is."""
    source = _MACHINE + path
    if os.path.isdir(source):
        os.makedirs(path, exist_ok=True)
    elif not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    linux.mount(source, path, flags=linux.BIND | linux.RECURSIVE)


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
