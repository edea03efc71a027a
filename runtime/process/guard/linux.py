"""System calls of Linux that Python has no function for. Each raises OSError when it fails."""

from __future__ import annotations

import ctypes
import os

READ_ONLY, NO_SETUID, NO_DEVICES, NO_PROGRAMS = 1, 2, 4, 8  # also of mount_setattr
BIND, DETACH, RECURSIVE, PRIVATE = 4096, 2, 16384, 1 << 18

NO_NEW_PRIVILEGES, PARENT_DEATH, DUMPABLE, SUBREAPER = 38, 1, 4, 36  # for prctl
_DROP_FROM_BOUNDS, _AMBIENT, _CLEAR_ALL = 24, 47, 4

_MOUNT_SETATTR = 442  # the same on all machines
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
_HERE, _WHOLE_TREE = -100, 0x8000
_CAPABILITIES_VERSION = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def syscall(number: int, what: str, *args: object) -> int:
    """Call the kernel by a number."""
    return _checked(_libc.syscall(ctypes.c_long(number), *args), what)


def unshare(namespaces: int) -> None:
    """Leave namespaces for new ones; children of this process get the one for process ids."""
    _checked(_libc.unshare(ctypes.c_int(namespaces)), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system, or with ``BIND`` a part of one that is there."""
    args = [os.fsencode(text) for text in (source, target, kind)]
    done = _libc.mount(*args, ctypes.c_ulong(flags), os.fsencode(options))
    _checked(done, f"mount {target}")


def restrict_mount(target: str, attributes: int, *, whole_tree: bool = True) -> None:
    """Take rights away from a mount, and from those below it."""
    wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = ctypes.c_uint(_WHOLE_TREE if whole_tree else 0)
    args = (ctypes.c_int(_HERE), os.fsencode(target), flags, wanted, ctypes.c_size_t(32))
    syscall(_MOUNT_SETATTR, f"mount_setattr {target}", *args)


def pivot_root(new: str, old: str) -> None:
    """Make a mount the root of all, and put the former root below it."""
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(f"pivot_root has no known number on {os.uname().machine}")
    syscall(number, "pivot_root", os.fsencode(new), os.fsencode(old))


def detach(target: str) -> None:
    """Unmount something, with all below it, whoever uses it."""
    _checked(_libc.umount2(os.fsencode(target), ctypes.c_int(DETACH)), f"umount {target}")


def prctl(option: int, value: int, more: int = 0) -> None:
    """Set something about this process."""
    args = [ctypes.c_ulong(number) for number in (value, more, 0, 0)]
    _checked(_libc.prctl(ctypes.c_int(option), *args), "prctl")


def drop_capabilities() -> None:
    """Give up every capability, for this process and for all that it becomes or starts."""
    prctl(_AMBIENT, _CLEAR_ALL)
    for capability in range(64):
        try:
            prctl(_DROP_FROM_BOUNDS, capability)
        except OSError:  # there are no more, or this process has none to give up
            break
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")
