"""The log's files as the operating system sees them: what is ours, what is on disk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from perdure.eventlog.errors import LogUnsupported
from perdure.eventlog.sqlite import schema

if TYPE_CHECKING:
    from pathlib import Path

PAGE: Final = 4096
_PIECE: Final = 1 << 20


def refuse_foreign(path: Path) -> None:
    """Look at a file before SQLite does: other people's databases stay as they are."""
    try:
        with path.open("rb") as file:
            header = file.read(schema.HEADER_BYTES)
    except FileNotFoundError:
        return
    if path.with_name(path.name + "-journal").exists() or not any(header):
        return  # the power went while a log was being made; SQLite knows how to clean up
    if not header.startswith(schema.MAGIC):
        raise LogUnsupported(f"{path} is not a log")
    application = int.from_bytes(header[schema.APPLICATION_ID_AT], "big")
    if application == schema.APPLICATION_ID or path.stat().st_size <= PAGE or wal_of(path).exists():
        return  # ours, or nothing yet; what is still in the write-ahead log is looked at later
    raise LogUnsupported(f"{path} is a database, but not a Perdure log")


def wal_of(path: Path) -> Path:
    """Give the write-ahead log that belongs to a database file."""
    return path.with_name(path.name + "-wal")


def shm_of(path: Path) -> Path:
    """Give SQLite's index of the write-ahead log, which is there while a database is open."""
    return path.with_name(path.name + "-shm")


def stands_still(path: Path) -> bool:
    """Tell whether a database lies where this process can write nothing, and no other has it open.

    SQLite reads such a file only if it is told so (``immutable``): it could make no index. If an
    index is there, the file was left open, or is open, and can be read with it.
    """
    if shm_of(path).exists() or has_wal(path):
        return False
    is_read_only = bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)
    return is_read_only or not os.access(path.parent, os.W_OK)


def has_wal(path: Path) -> bool:
    """Tell whether a write-ahead log with something in it belongs to a database file."""
    wal = wal_of(path)
    return wal.exists() and wal.stat().st_size > 0


def read_only_uri(path: Path) -> str:
    """Give the name by which SQLite opens a database for reading only."""
    path = path.absolute()
    return f"{path.as_uri()}?mode=ro" + ("&immutable=1" if stands_still(path) else "")


def make_durable(wal: Path) -> None:
    """Put what a dead writer left in the write-ahead log on disk, before anybody believes it.

    Its last records may be in the kernel's memory only, and after a failed sync the kernel takes
    them for written. So they are written again, the same bytes at the same place, and synced.
    """
    try:
        fd = os.open(wal, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        offset = 0
        while piece := os.pread(fd, _PIECE, offset):
            offset += os.pwrite(fd, piece, offset)
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_directory(directory: Path) -> None:
    """Make a new file's name durable: SQLite syncs contents, and names only of its journals."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
