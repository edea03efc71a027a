"""The reserve: room on the disk that a log keeps, so that it can be opened when the disk is full.

To open a database, SQLite needs some new pages beside it. The reserve is given back to the disk
before a log is opened, and taken again when all files that lie beside the log are open, too.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from perdure.eventlog.errors import DiskFull

if TYPE_CHECKING:
    from pathlib import Path

RESERVE: Final = 1 << 20  # bytes; each of the handful of databases needs 32 KiB and some pages
ROOM: Final = 256 << 10  # bytes beside the reserve without which the disk is full
_PIECE: Final = bytes(128 << 10)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Reserve:
    """The file that takes up the room. Synchronous."""

    def __init__(self, log_path: Path) -> None:
        """Name the file of a log; nothing is touched yet."""
        self._path = log_path.with_name(f"{log_path.name}.reserve")
        self._was_taken = False

    def release(self) -> None:
        """Give the room back to the disk, if it was taken; where that fails, opening tells why."""
        with suppress(OSError):
            self._path.unlink()

    def take(self) -> None:
        """Take the room, or as much as there is; raise DiskFull unless there is more than that."""
        self._was_taken = True
        try:
            self._grow()
        except OSError as error:
            if error.errno in _FULL:
                raise DiskFull("the disk is full") from error
            raise

    def keep(self) -> None:
        """Take what is lacking, if any was taken before: closing the log has freed some."""
        with suppress(OSError, DiskFull):
            if self._was_taken and not self._is_whole():
                self.take()

    def _is_whole(self) -> bool:
        return self._path.exists() and self._path.stat().st_size >= RESERVE

    def _grow(self) -> None:
        """Write until there is the reserve and some room; then give the room back."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            while size < RESERVE + ROOM:
                size += os.pwrite(descriptor, _PIECE, size)
        finally:
            with suppress(OSError):
                os.ftruncate(descriptor, min(RESERVE, os.fstat(descriptor).st_size))
            os.close(descriptor)
