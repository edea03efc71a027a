"""Where sealed secrets lie: one file for each run, beside the log, and the key that opens them.

    <data directory>/seal.key         32 bytes, for its owner's eyes only
    <data directory>/sealed/<run id>  what the key has sealed

A file is there whole or not at all: it is written under another name, synced, renamed, and its
directory synced. A key or a directory that is found may have been made by a process that died
before it could sync the name, so that is done once more before anything is sealed. Everything here
blocks and is called in a thread.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from perdure.eventlog.sqlite.file import sync_directory
from perdure.runtime.blobs.blob import is_scope

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
    """Sealed secrets in files of a data directory, which only its one writer changes."""

    def __init__(self, data_dir: Path) -> None:
        """Touch nothing, but refuse a key that others can read."""
        self._data_dir = data_dir
        self._folder = data_dir / SEALED_FOLDER
        self._key_path = data_dir / KEY_FILE
        self._synced: set[Path] = set()
        self.existing_key()

    # The key

    def key(self, make: Callable[[int], bytes]) -> bytes:
        """Give the key; the first time, make it."""
        key = self.existing_key()
        if key is None:
            self._refuse_another_key()
            key = make(KEY_BYTES)
            self.keep_key(key)
        self._sync_name_of(self._key_path)
        return key

    def existing_key(self) -> bytes | None:
        """Give the key, if there is one; refuse one that cannot be it."""
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

    def keep_key(self, key: bytes) -> None:
        """Put the key in its place, where there must not be one yet."""
        write_whole(self._key_path, key)
        self._synced.add(self._key_path)

    def _refuse_another_key(self) -> None:
        """Refuse to go on with a new key where seals of another one lie."""
        sealed = len(self.present())
        if sealed:
            raise SecretsUnusable(
                f"{self._key_path} is missing, and {sealed} sealed secrets need it: put it"
                f" back (mode 600), or remove {self._folder}; runs that need them fail then"
            )

    def check(self) -> None:
        """Refuse to begin where seals lie and the key is missing."""
        if self.existing_key() is None:
            self._refuse_another_key()

    # The seals

    def put(self, run_id: str, data: bytes) -> None:
        """Keep what was sealed for a run. When this returns it is on disk."""
        path = self._path(run_id)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._sync_name_of(self._folder)
        write_whole(path, data)

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
        for name in self._names():
            if name.endswith(_UNFINISHED):
                (self._folder / name).unlink(missing_ok=True)
        return self.present()

    def present(self) -> list[str]:
        """Give the runs for which something was sealed, and change nothing."""
        return [name for name in self._names() if is_scope(name)]

    def _names(self) -> list[str]:
        if not self._folder.is_dir():
            return []
        return sorted(path.name for path in self._folder.iterdir())

    def _path(self, run_id: str) -> Path:
        if not is_scope(run_id):
            raise ValueError(f"{run_id[:100]!r} cannot be the id of a run")
        return self._folder / run_id

    def _sync_name_of(self, path: Path) -> None:
        """Make a name in the data directory durable, whoever made it."""
        if path not in self._synced:
            sync_directory(self._data_dir)
            self._synced.add(path)


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


def write_whole(path: Path, data: bytes) -> None:
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
    try:
        sync_directory(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)  # a later sync would claim what this one could not do
        raise
