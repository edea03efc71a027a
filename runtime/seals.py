"""Where sealed secrets lie: one file for each run, beside the log, and the key that opens them.

    <data directory>/seal.key         32 bytes, for its owner's eyes only
    <data directory>/sealed/<run id>  what the key has sealed

A file is there whole or not at all: it is written under another name, synced, renamed, and its
directory synced. Everything here blocks and is called in a thread.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY_FILE: Final = "seal.key"
KEY_BYTES: Final = 32
SEALED_FOLDER: Final = "sealed"
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_UNFINISHED: Final = ".new"


class SecretsUnusable(Exception):
    """Secrets cannot be kept here. The message says which file is wrong and what to do."""


class Seals(Protocol):
    """A place for sealed secrets, by the id of their run."""

    def key(self, make: Callable[[int], bytes]) -> bytes:
        """Give the key; the first time, make it from so many bytes that nobody can guess."""

    def put(self, run_id: str, data: bytes) -> None:
        """Keep what was sealed for a run. When this returns it is on disk."""

    def get(self, run_id: str) -> bytes | None:
        """Give what was sealed for a run, if it is there."""

    def drop(self, run_id: str) -> None:
        """Forget what was sealed for a run."""

    def run_ids(self) -> list[str]:
        """Give the runs for which something was sealed."""


class MemorySeals:
    """Sealed secrets in memory, for tests and simulations. They survive simulated crashes."""

    def __init__(self) -> None:
        """Begin empty, without a key."""
        self._key: bytes | None = None
        self.sealed: dict[str, bytes] = {}

    def key(self, make: Callable[[int], bytes]) -> bytes:
        """Give the key."""
        if self._key is None:
            self._key = make(KEY_BYTES)
        return self._key

    def put(self, run_id: str, data: bytes) -> None:
        """Keep what was sealed for a run."""
        self.sealed[run_id] = data

    def get(self, run_id: str) -> bytes | None:
        """Give what was sealed for a run, if it is there."""
        return self.sealed.get(run_id)

    def drop(self, run_id: str) -> None:
        """Forget what was sealed for a run."""
        self.sealed.pop(run_id, None)

    def run_ids(self) -> list[str]:
        """Give the runs for which something was sealed."""
        return sorted(self.sealed)


class SealFolder:
    """Sealed secrets in files of a data directory, which only its one writer touches."""

    def __init__(self, data_dir: Path) -> None:
        """Touch nothing, but refuse a key that others can read."""
        self._data_dir = data_dir
        self._folder = data_dir / SEALED_FOLDER
        self._key_path = data_dir / KEY_FILE
        self._existing_key()

    def key(self, make: Callable[[int], bytes]) -> bytes:
        """Give the key; the first time, make it."""
        key = self._existing_key()
        if key is None:
            _write_whole(self._key_path, make(KEY_BYTES))
            key = self._existing_key()
        assert key is not None  # noqa: S101 - it was just written
        return key

    def _existing_key(self) -> bytes | None:
        try:
            key = read_private(self._key_path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SecretsUnusable(f"{self._key_path} cannot be used: {error}") from error
        if len(key) != KEY_BYTES:
            raise SecretsUnusable(
                f"{self._key_path} is no key: it has {len(key)} bytes, not {KEY_BYTES};"
                " put back the right one, or remove it together with all that it sealed"
            )
        return key

    def put(self, run_id: str, data: bytes) -> None:
        """Keep what was sealed for a run. When this returns it is on disk."""
        if not self._folder.is_dir():
            self._folder.mkdir(mode=0o700, exist_ok=True)
            _sync_folder(self._data_dir)
        _write_whole(self._path(run_id), data)

    def get(self, run_id: str) -> bytes | None:
        """Give what was sealed for a run, if it is there."""
        try:
            return self._path(run_id).read_bytes()
        except FileNotFoundError:
            return None

    def drop(self, run_id: str) -> None:
        """Forget what was sealed for a run."""
        self._path(run_id).unlink(missing_ok=True)

    def run_ids(self) -> list[str]:
        """Give the runs for which something was sealed; clear away what was never finished."""
        if not self._folder.is_dir():
            return []
        names = sorted(path.name for path in self._folder.iterdir())
        for name in names:
            if name.endswith(_UNFINISHED):
                (self._folder / name).unlink(missing_ok=True)
        return [name for name in names if not name.endswith(_UNFINISHED)]

    def _path(self, run_id: str) -> Path:
        return self._folder / run_id


def read_private(path: Path, most: int = 1 << 20) -> bytes:
    """Read a file; refuse one that others than its owner can read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise PermissionError(f"{path.name} is not a file")
        if found.st_mode & OTHERS:
            mode = stat.S_IMODE(found.st_mode)
            raise PermissionError(
                f"others can read {path.name} (its mode is {mode:03o}); chmod 600 it"
            )
        return file.read(most)


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file of its owner so that after a power cut it is there whole or not at all."""
    unfinished = path.with_name(path.name + _UNFINISHED)
    with suppress(FileNotFoundError):
        unfinished.unlink()
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        unfinished.rename(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
