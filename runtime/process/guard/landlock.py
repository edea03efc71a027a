"""Landlock: a process gives up all files but some, where it can have no tree of its own.

It needs no privileges, so it works in containers that allow no namespaces. Names and sizes of other
files stay visible. A process that is restricted so cannot look into others that are not.
"""

from __future__ import annotations

import ctypes
import os
import stat

from . import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .order import Places

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls, the same on all machines
_BENEATH = 1  # the kind of rule that names a file or a folder
_LIST = 1 << 3  # read folders, this one and those below
_READ = _LIST | 1 << 0 | 1 << 2  # execute and read files
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # what can be done to a file
_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}  # by version
_SOCKETS_AND_SIGNALS = 3  # abstract ones to, and those for, processes that are not restricted
_SCOPES_SINCE = 6


def version() -> int:
    """Tell which version the kernel has; raise OSError if it has none."""
    return linux.syscall(_CREATE, "landlock", None, ctypes.c_size_t(0), ctypes.c_uint(1))


def restrict(places: Places) -> None:
    """Give up all files but these, for this process and all that it starts."""
    known = version()
    files = next(rights for since, rights in reversed(_FILES.items()) if known >= since)
    scopes = _SOCKETS_AND_SIGNALS if known >= _SCOPES_SINCE else 0
    handled = (ctypes.c_uint64 * 3)(files, 0, scopes)
    size = ctypes.c_size_t(24 if scopes else 8)
    rules = linux.syscall(_CREATE, "landlock", handled, size, ctypes.c_uint(0))
    for kind, path in places:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights = {"read": _READ, "write": files, "list": _LIST}[kind]
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        rule = (rights & files).to_bytes(8, "little") + place.to_bytes(4, "little")
        args = (ctypes.c_int(rules), ctypes.c_int(_BENEATH), rule, ctypes.c_uint(0))
        linux.syscall(_ADD, f"landlock {path}", *args)
        os.close(place)
    linux.syscall(_RESTRICT, "landlock", ctypes.c_int(rules), ctypes.c_uint(0))
    os.close(rules)
