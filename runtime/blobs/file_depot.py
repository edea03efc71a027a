"""Blobs as files.

    <data_dir>/scopes/<scope>/sha256/ab/cd...    a blob whose hash begins with abcd
    <data_dir>/scopes/.drafts/<id>               what is being written

A draft is written, synced and renamed, and the directories that lead to it are synced, before
anybody hears of it. A directory that is found may have been made by a process that died before it
could sync it, so what counts is not who made it but whether this process has seen it synced. What
is left among the drafts at start-up belongs to nobody.

Only a regular file is a blob. A link, a pipe or a device under a blob's name is as good as no file:
what it leads to was never written as a blob.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from perdure.eventlog.sqlite.file import sync_directory
from perdure.runtime.blobs.blob import Blob, blob_at, is_scope
from perdure.runtime.blobs.depot import Stored

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perdure.runtime.blobs.depot import Buffer, Content, DraftFile

SCOPES: Final = "scopes"
DRAFTS: Final = ".drafts"  # no scope begins with a dot
_ALGORITHM: Final = "sha256"
_PREFIX: Final = 2  # letters of a hash that name the directory
_READING: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe would wait
_NO_FILE: Final = frozenset({errno.ELOOP, errno.ENXIO})  # a link, a socket
_SYNCED: Final = 10_000  # directories that are remembered as synced


class FileDepot:
    """Blobs as files under a directory."""

    def __init__(self, data_dir: Path) -> None:
        """Nothing is made before something is written."""
        self._data_dir = data_dir
        self._top = data_dir / SCOPES
        self._drafts = self._top / DRAFTS
        self._synced: set[Path] = set()

    def begin(self, draft_id: str) -> DraftFile:
        """Begin a draft in a file of its own."""
        for directory in (self._top, self._drafts):
            directory.mkdir(mode=0o700, exist_ok=True)
        return _FileDraft(self, self._drafts / draft_id)

    def renew(self, blob: Blob, size: int | None, now: int) -> bool:
        """Set the file's time, and sync its name: whoever made it may have died before that."""
        path = self._path(blob)
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode) or size not in {None, status.st_size}:
                return False  # planted or damaged; it will be replaced
            os.utime(path, ns=(now, now), follow_symlinks=False)
        except FileNotFoundError:
            return False
        self.make_directories(path.parent)
        sync_directory(path.parent)
        return True

    def open(self, blob: Blob) -> Content:
        """Open the file, if it is one."""
        try:
            fd = os.open(self._path(blob), _READING)
        except OSError as error:
            if error.errno in _NO_FILE:
                raise FileNotFoundError(blob.url) from error
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise FileNotFoundError(blob.url)
        return _FileContent(fd)

    def remove(self, blob: Blob) -> None:
        """Unlink the file, and the directories that are empty then."""
        path = self._path(blob)
        path.unlink(missing_ok=True)
        for directory in list(path.parents)[:3]:
            self._synced.discard(directory)
            try:
                directory.rmdir()
            except OSError:
                return  # something else is in it

    def scopes(self) -> Sequence[str]:
        """List the directories that can be scopes."""
        return sorted(name for name in _names(self._top) if is_scope(name))

    def stored(self, scope: str) -> Sequence[Stored]:
        """List the files that can be blobs."""
        top = self._top / scope / _ALGORITHM
        found: list[Stored] = []
        for prefix in _names(top) if is_scope(scope) else ():
            for rest in _names(top / prefix):
                blob = Blob(scope, prefix + rest)
                if len(prefix) == _PREFIX and blob_at(blob.url) is not None:
                    with suppress(FileNotFoundError):
                        status = (top / prefix / rest).lstat()
                        if stat.S_ISREG(status.st_mode):
                            found.append(Stored(blob, status.st_size, status.st_mtime_ns))
        return found

    def clean_up(self) -> int:
        """Remove all drafts."""
        left = _names(self._drafts)
        for name in left:
            (self._drafts / name).unlink(missing_ok=True)
        return len(left)

    def publish(self, draft: Path, blob: Blob) -> None:
        """Give a draft that is synced its name, durably."""
        path = self._path(blob)
        self.make_directories(path.parent)
        draft.rename(path)
        try:
            sync_directory(path.parent)
        except OSError:
            path.unlink(missing_ok=True)  # a later sync would claim what this one could not do
            raise

    def make_directories(self, directory: Path) -> None:
        """Make directories down from the data directory, and sync the names of all of them."""
        if directory in self._synced or directory == self._data_dir:
            return
        self.make_directories(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        sync_directory(directory.parent)
        if len(self._synced) >= _SYNCED:
            self._synced.clear()
        self._synced.add(directory)

    def _path(self, blob: Blob) -> Path:
        if blob_at(blob.url) != blob:
            raise ValueError(f"{blob.url!r} cannot be a blob")
        prefix, rest = blob.sha256[:_PREFIX], blob.sha256[_PREFIX:]
        return self._top / blob.scope / _ALGORITHM / prefix / rest


class _FileDraft:
    """A draft in a file, which stays open until it is synced: only so no error of it is missed."""

    def __init__(self, depot: FileDepot, path: Path) -> None:
        self._depot = depot
        self._path = path
        self._hash = sha256()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._published = False

    @property
    def sha256(self) -> str:
        """The hash of what was written so far."""
        return self._hash.hexdigest()

    def write(self, data: Buffer) -> None:
        """Add bytes."""
        rest = memoryview(data).cast("B")
        self._hash.update(rest)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def publish(self, blob: Blob, now: int) -> None:
        """Sync the file and give it its name."""
        os.utime(self._fd, ns=(now, now))
        os.fsync(self._fd)
        self._depot.publish(self._path, blob)
        self._published = True

    def discard(self) -> None:
        """Close the file, and remove it unless it was published."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            if not self._published:
                self._path.unlink(missing_ok=True)


class _FileContent:
    """A file that is open for reading."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size = os.fstat(fd).st_size

    def read(self, start: int, length: int) -> bytes:
        """Read from a place."""
        return os.pread(self._fd, length, start)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _names(directory: Path) -> Sequence[str]:
    try:
        return [path.name for path in directory.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
