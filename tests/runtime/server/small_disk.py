"""A disk that can be full: a small file system of its own where we may mount one."""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.eventlog import DiskFull, SqliteStore

SIZE = 24 << 20  # bytes
PIECE = bytes(4096)


class SmallDisk(ABC):
    """A place for a data directory."""

    def __init__(self, path: Path) -> None:
        """There is room."""
        self.data = path / "data"

    @abstractmethod
    def fill(self) -> None:
        """Leave no room."""

    @abstractmethod
    def free(self) -> None:
        """Make room."""


class MountedDisk(SmallDisk):
    """A file system in memory, which another program fills to its last byte."""

    def __init__(self, path: Path) -> None:
        """It is mounted."""
        super().__init__(path)
        self._other = path / "other"

    def fill(self) -> None:
        """Write until there is no room."""
        descriptor = os.open(self._other, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            while True:
                os.write(descriptor, PIECE)
        except OSError:
            os.close(descriptor)

    def free(self) -> None:
        """Remove what filled it."""
        self._other.unlink(missing_ok=True)


class PretendedDisk(SmallDisk):
    """The store of every log in this process, which says that the disk is full."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Wrap what writes."""
        super().__init__(path)
        self._is_full = False
        commit = SqliteStore.commit

        def commit_if_there_is_room(store: SqliteStore, records: Any) -> None:
            self._refuse(store)
            commit(store, records)

        monkeypatch.setattr(SqliteStore, "commit", commit_if_there_is_room)
        monkeypatch.setattr(SqliteStore, "check_room", self._refuse)

    def _refuse(self, _: SqliteStore | None = None) -> None:
        if self._is_full:
            raise DiskFull("no space left on the disk")

    def fill(self) -> None:
        """Refuse."""
        self._is_full = True

    def free(self) -> None:
        """Refuse no more."""
        self._is_full = False


@contextmanager
def small_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    """Give a disk for the length of a block: a real one, if this is root and may mount it."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "perdure-test", str(path)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        disk: SmallDisk = PretendedDisk(path, monkeypatch)
        yield disk
        disk.free()
        return
    try:
        yield MountedDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], capture_output=True, check=True)
