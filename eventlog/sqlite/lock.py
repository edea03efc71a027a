"""The writer's lock: at most one process writes a log, and its pid is known.

The lock is the kernel's (``flock``), so it ends with its process, however that ends. (A child that
was forked without exec would keep it.) The pid in the file is there for people.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from perdure.eventlog.errors import LogLocked

_LOCKS: Final = Path("/proc/locks")


class Holder(NamedTuple):
    """Who holds a lock. Without ``known``, whether anybody does is not known."""

    pid: int | None
    known: bool


class WriterLock:
    """A lock file beside the log, held from construction to ``release``."""

    def __init__(self, log_path: Path) -> None:
        """Take the lock, or raise LogLocked with the holder's pid."""
        self._path = log_path.with_name(log_path.name + ".lock")
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = _pid_in(self._fd)
            os.close(self._fd)
            raise LogLocked(str(log_path), pid) from None
        try:
            # over what was there, which needs no room on a full disk
            os.ftruncate(self._fd, os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0))
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Give the lock back. Doing so twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def holder_of(log_path: Path) -> Holder | None:
    """Tell who writes a log, without getting in anybody's way; None if nobody does.

    The kernel's table of locks is asked. Where there is none (it is Linux's), the answer is that
    it is not known.
    """
    path = log_path.with_name(log_path.name + ".lock")
    text = b""
    try:
        found = path.stat()
        with suppress(PermissionError):  # the kernel tells whether it is held all the same
            text = path.read_bytes().strip()
        locks = _LOCKS.read_text("ascii")
    except FileNotFoundError:
        return None if _LOCKS.exists() or not path.exists() else Holder(pid=None, known=False)
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in locks.splitlines():
        words = line.split()
        if "FLOCK" in words and place in words and "->" not in words:
            return Holder(pid=int(text) if text.isdigit() else None, known=True)
    return None


def _pid_in(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else None
