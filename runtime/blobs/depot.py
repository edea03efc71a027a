"""The depot: where blobs are kept, each there in full or not at all.

Synchronous; called from a thread. Whoever calls sees to it that only one thread at a time changes
a scope.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.runtime.blobs.blob import Blob

    Buffer = bytes | bytearray | memoryview


class Stored(NamedTuple):
    """A blob that is there, and when it was written or used again (UTC nanoseconds)."""

    blob: Blob
    size: int
    renewed_at: int


class DraftFile(Protocol):
    """Bytes on their way into the depot."""

    @property
    def sha256(self) -> str:
        """The hash of what was written so far."""

    def write(self, data: Buffer) -> None:
        """Add bytes."""

    def publish(self, blob: Blob, now: int) -> None:
        """Make it a blob, durably."""

    def discard(self) -> None:
        """Throw it away, unless it was published. Doing so twice is harmless."""


class Content(Protocol):
    """A blob that is open for reading; it stays readable even if the blob is removed."""

    @property
    def size(self) -> int:
        """How many bytes it has."""

    def read(self, start: int, length: int) -> bytes:
        """Read from a place, so many bytes at most."""

    def close(self) -> None:
        """Let go of it."""


class Depot(Protocol):
    """Where blobs are kept."""

    def begin(self, draft_id: str) -> DraftFile:
        """Begin a draft under an id that was never used before."""

    def renew(self, blob: Blob, size: int | None, now: int) -> bool:
        """Say that a blob of a size is used again, durably; tell whether there is one."""

    def open(self, blob: Blob) -> Content:
        """Open a blob, or raise FileNotFoundError."""

    def remove(self, blob: Blob) -> None:
        """Remove a blob. If there is none, nothing happens."""

    def scopes(self) -> Sequence[str]:
        """Name the scopes that have blobs, or had some."""

    def stored(self, scope: str) -> Sequence[Stored]:
        """List the blobs of a scope."""

    def clean_up(self) -> int:
        """Remove drafts that an earlier process left; give how many there were."""


class MemoryDepot:
    """Blobs in memory, for logs in memory."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._blobs: dict[Blob, tuple[bytes, int]] = {}

    def begin(self, draft_id: str) -> DraftFile:  # noqa: ARG002 - a draft here needs no name
        """Begin a draft."""
        return _MemoryDraft(self)

    def renew(self, blob: Blob, size: int | None, now: int) -> bool:  # noqa: ARG002 - it is right
        """Set the time."""
        if blob not in self._blobs:
            return False
        self.keep(blob, self._blobs[blob][0], now)
        return True

    def open(self, blob: Blob) -> Content:
        """Give the bytes."""
        if blob not in self._blobs:
            raise FileNotFoundError(blob.url)
        return _MemoryContent(self._blobs[blob][0])

    def remove(self, blob: Blob) -> None:
        """Forget a blob."""
        self._blobs.pop(blob, None)

    def scopes(self) -> Sequence[str]:
        """Name the scopes that have blobs."""
        return sorted({blob.scope for blob in self._blobs})

    def stored(self, scope: str) -> Sequence[Stored]:
        """List the blobs of a scope."""
        return [
            Stored(blob, len(data), renewed_at)
            for blob, (data, renewed_at) in self._blobs.items()
            if blob.scope == scope
        ]

    def clean_up(self) -> int:
        """Nothing is left by a process whose memory is gone."""
        return 0

    def keep(self, blob: Blob, data: bytes, now: int) -> None:
        """Take in a blob."""
        self._blobs[blob] = data, now


class _MemoryDraft:
    """A draft in memory."""

    def __init__(self, depot: MemoryDepot) -> None:
        self._depot = depot
        self._data = bytearray()

    @property
    def sha256(self) -> str:
        """The hash of what was written so far."""
        return sha256(self._data).hexdigest()

    def write(self, data: Buffer) -> None:
        """Add bytes."""
        self._data += data

    def publish(self, blob: Blob, now: int) -> None:
        """Hand the bytes over."""
        self._depot.keep(blob, bytes(self._data), now)

    def discard(self) -> None:
        """Forget the bytes."""
        self._data.clear()


class _MemoryContent:
    """Bytes that are open for reading."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, start: int, length: int) -> bytes:
        """Read from a place."""
        return self._data[start : start + length]

    def close(self) -> None:
        """There is nothing to let go of."""
