"""Blobs: large outputs outside of the log, written before the event that names them.

    async with blobs.draft(scope) as draft:
        await draft.write(b"...")
        blob = await draft.publish()
        ...                                # put an event into the log that names it

From ``publish`` to the end of the block the blob is held: it is on disk, and collection passes it
by. After that the log holds it, or nobody does. A blob that is there already is not written again:
it is renewed, as if it had been. Publishing, renewing and removing exclude each other in a scope,
so that nobody relies on a blob which is being removed.
"""

from __future__ import annotations

import errno
import logging
from collections import Counter, OrderedDict
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import trio

from perdure.eventlog.errors import DiskFull
from perdure.eventlog.units import NANOSECONDS
from perdure.runtime.blobs.blob import Blob, is_scope
from perdure.runtime.blobs.depot import MemoryDepot
from perdure.runtime.kernel.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

    from perdure.eventlog.env import Env
    from perdure.runtime.blobs.depot import Content, Depot, DraftFile

Result = TypeVar("Result")

CHUNK: Final = 256 << 10  # bytes that are read or written at once
THREADS: Final = 8  # that read and write blobs
QUOTA: Final = 10 << 30
SCOPE_QUOTA: Final = 1 << 30
GRACE: Final = 24 * 3600.0
MEASURED: Final = 1000  # scopes whose sizes are remembered
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_log = logging.getLogger("perdure.blobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobLimits:
    """How many bytes blobs may have, and how long one that nobody names is kept, in seconds."""

    quota: int = QUOTA
    scope_quota: int = SCOPE_QUOTA
    grace: float = GRACE


class Collected(NamedTuple):
    """What a collection has removed."""

    blobs: int
    bytes: int


class BlobStore:
    """All blobs of a data directory, in the hands of the one process that writes there."""

    def __init__(
        self, env: Env, depot: Depot | None = None, *, limits: BlobLimits | None = None
    ) -> None:
        """Keep blobs in a depot, or in memory."""
        self.env = env
        self.limits = limits or BlobLimits()
        self._depot = depot or MemoryDepot()
        self._files = trio.CapacityLimiter(THREADS)
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()
        self._held: Counter[Blob] = Counter()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._total: int | None = None  # of all blobs, once they were measured
        self._measuring = trio.Lock()
        self.drafted = 0  # bytes of drafts

    async def call(self, fn: Callable[..., Result], *args: Any) -> Result:
        """Do something with the depot in a thread."""
        try:
            return await self.env.run_sync(lambda: fn(*args), limiter=self._files)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise DiskFull(f"a blob cannot be written: {error}") from error
            raise

    async def clean_up(self) -> None:
        """Remove what an earlier process has not finished. Nothing may be written before."""
        left = await self.call(self._depot.clean_up)
        if left:
            _log.info("%d drafts that nobody finished were removed", left)

    # Writing

    @asynccontextmanager
    async def draft(self, scope: str, *, limit: int | None = None) -> AsyncIterator[Draft]:
        """Write a blob for the length of a block, of so many bytes at most."""
        draft = self.new_draft(scope, limit=limit)
        try:
            yield draft
        finally:
            await draft.aclose()

    def new_draft(self, scope: str, *, limit: int | None = None) -> Draft:
        """Give a draft to somebody who will close it."""
        return Draft(self, scope, limit)

    @asynccontextmanager
    async def hold(self, blob: Blob) -> AsyncIterator[None]:
        """Renew a blob that is there, and hold it for the length of a block."""
        async with self.lock(blob.scope):
            if not await self.call(self._depot.renew, blob, None, self.env.now()):
                raise not_found(blob)
            self.take_hold(blob)
        try:
            yield
        finally:
            self.let_go(blob)

    def take_hold(self, blob: Blob) -> None:
        """Keep a blob from being collected. Its scope is locked."""
        self._held[blob] += 1

    def let_go(self, blob: Blob) -> None:
        """Hold a blob no more."""
        self._held[blob] -= 1
        if not self._held[blob]:
            del self._held[blob]

    def lock(self, scope: str) -> trio.Lock:
        """Give the lock of a scope. It lives as long as somebody has it."""
        lock = self._locks.get(scope)
        if lock is None:
            lock = self._locks[scope] = trio.Lock()
        return lock

    async def begin(self) -> DraftFile:
        """Begin a draft in the depot."""
        return await self.call(self._depot.begin, str(self.env.new_id()))

    async def put(self, file: DraftFile, blob: Blob, size: int) -> None:
        """Make a draft a blob, or renew the one that is there. The scope is locked."""
        now = self.env.now()
        if await self.call(self._depot.renew, blob, size, now):
            return
        used, total = await self.used_by(blob.scope), await self._measured()
        if used + size > self.limits.scope_quota:
            raise _no_room("this session or run has", self.limits.scope_quota)
        if total + size > self.limits.quota:
            raise _no_room("all together have", self.limits.quota)
        self._count(size)
        try:
            await self.call(file.publish, blob, now)
        except BaseException:
            self._count(-size)
            raise
        self._sizes[blob.scope] = used + size

    # Quota

    def check_draft(self, size: int, more: int) -> None:
        """Refuse bytes that cannot become a blob, whatever else is stored.

        Those that are stored already are written again, after a crash for example, and must not be
        refused for that: whether there is room for a blob is known when its hash is.
        """
        if size + more > self.limits.scope_quota:
            raise _no_room("this session or run has", self.limits.scope_quota)
        if self.drafted + more > self.limits.quota:
            raise _no_room("all together have", self.limits.quota)

    async def used_by(self, scope: str) -> int:
        """Give how many bytes a scope has."""
        if scope in self._sizes:
            self._sizes.move_to_end(scope)
            return self._sizes[scope]
        size = await self.call(_size_of, self._depot, scope)
        while len(self._sizes) >= MEASURED:
            self._sizes.popitem(last=False)
        return self._sizes.setdefault(scope, size)  # somebody may have been faster

    async def _measured(self) -> int:
        """Give how many bytes all blobs have."""
        async with self._measuring:
            if self._total is None:
                self._total = await self.call(_size_of_all, self._depot)
            return self._total

    def _count(self, size: int) -> None:
        """Take note of bytes that come, or go (less than none)."""
        self._total = (self._total or 0) + size

    # Reading

    @asynccontextmanager
    async def open(self, blob: Blob) -> AsyncIterator[BlobReading]:
        """Read a blob for the length of a block; meanwhile it cannot disappear."""
        try:
            content = await self.call(self._depot.open, blob)
        except (FileNotFoundError, ValueError):
            raise not_found(blob) from None
        try:
            yield BlobReading(self, blob, content)
        finally:
            with trio.CancelScope(shield=True):
                await self.call(content.close)

    # Collecting

    async def collect(self, named: Callable[[str], Awaitable[Collection[Blob]]]) -> Collected:
        """Remove old blobs that nobody names. ``named`` asks the log, as it is when it is asked."""
        before = self.env.now() - round(self.limits.grace * NANOSECONDS)
        blobs = size = 0
        await self._measured()
        for scope in await self.call(self._depot.scopes):
            if any(s.renewed_at <= before for s in await self.call(self._depot.stored, scope)):
                removed = await self._collect(scope, before, named)
                blobs, size = blobs + removed.blobs, size + removed.bytes
        if blobs:
            _log.info("%d blobs that nobody names were removed, %d bytes", blobs, size)
        return Collected(blobs, size)

    async def _collect(
        self, scope: str, before: int, named: Callable[[str], Awaitable[Collection[Blob]]]
    ) -> Collected:
        async with self.lock(scope):
            # Whoever holds a blob lets go of it only after the log has named it. So first look who
            # holds what, then at the log: what was let go of in between is in the log.
            kept = set(self._held)
            kept.update(await named(scope))
            blobs = size = 0
            for stored in await self.call(self._depot.stored, scope):
                if stored.blob in kept or stored.renewed_at > before:
                    continue
                await self.call(self._depot.remove, stored.blob)
                blobs, size = blobs + 1, size + stored.size
                self._sizes.pop(scope, None)
                self._count(-stored.size)
            return Collected(blobs, size)


class Draft:
    """Bytes on their way to becoming a blob."""

    def __init__(self, store: BlobStore, scope: str, limit: int | None) -> None:
        """Make no file before there are bytes."""
        if not is_scope(scope):
            raise OperationError("VALIDATION_ERROR", f"{scope!r} cannot have blobs")
        self.size = 0
        self._waiting = bytearray()  # at most a chunk
        self._flushed = 0
        self._store = store
        self._scope = scope
        self._limit = limit
        self._file: DraftFile | None = None
        self._held: Blob | None = None

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes, of any number; a few wait for more before they go to the disk."""
        rest = memoryview(data).cast("B")
        if self._limit is not None and self.size + len(rest) > self._limit:
            raise OperationError(
                "PAYLOAD_TOO_LARGE", f"this has more than {self._limit} bytes", limit=self._limit
            )
        while rest:
            room = CHUNK - len(self._waiting)
            self._waiting += rest[:room]
            self.size += len(rest[:room])
            rest = rest[room:]
            if len(self._waiting) == CHUNK:
                await self._flush()

    async def _flush(self) -> None:
        piece = bytes(self._waiting)
        self._store.check_draft(self._flushed, len(piece))
        self._flushed += len(piece)
        self._store.drafted += len(piece)
        await self._store.call((await self._open()).write, piece)
        self._waiting.clear()

    async def publish(self) -> Blob:
        """Make it a blob that survives a power cut; it is held until the draft is closed."""
        await self._flush()
        file = await self._open()
        blob = Blob(self._scope, file.sha256)
        async with self._store.lock(self._scope):
            await self._store.put(file, blob, self.size)
            self._store.take_hold(blob)
            self._held = blob
        return blob

    async def aclose(self) -> None:
        """Throw away what was not published, and let go of what was."""
        try:
            if self._file is not None:
                with trio.CancelScope(shield=True):
                    await self._store.call(self._file.discard)
        finally:
            self._store.drafted -= self._flushed
            self._flushed, self._file = 0, None
            if self._held is not None:
                self._store.let_go(self._held)
                self._held = None

    async def _open(self) -> DraftFile:
        if self._file is None:
            self._file = await self._store.begin()
        return self._file


class BlobReading:
    """A blob that is open for reading."""

    def __init__(self, store: BlobStore, blob: Blob, content: Content) -> None:
        """Read what the depot has opened."""
        self.blob = blob
        self.size = content.size
        self._store = store
        self._content = content

    async def pieces(self, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Give a range of its bytes in pieces, to its end by default or if it is shorter.

        Whoever reads all of it hears at the end if these are not the bytes that were stored.
        """
        if start < 0 or start > self.size or (length is not None and length < 0):
            raise OperationError("INVALID_RANGE", f"the blob has {self.size} bytes", size=self.size)
        end = self.size if length is None else min(start + length, self.size)
        check = sha256() if (start, end) == (0, self.size) else None
        while start < end:
            piece = await self._store.call(self._content.read, start, min(CHUNK, end - start))
            if not piece:
                raise damaged(self.blob)  # somebody has cut it off while we read
            start += len(piece)
            if check is not None:
                check.update(piece)
            yield piece
        if check is not None and check.hexdigest() != self.blob.sha256:
            raise damaged(self.blob)

    async def read(self, start: int = 0, length: int | None = None) -> bytes:
        """Read a range into memory."""
        return b"".join([piece async for piece in self.pieces(start, length)])


def not_found(blob: Blob) -> OperationError:
    """Say that there is no such blob."""
    return OperationError("BLOB_NOT_FOUND", "there is no such blob", sha256=blob.sha256)


def damaged(blob: Blob) -> OperationError:
    """Say that a blob is not what it was."""
    return OperationError("BLOB_DAMAGED", "the blob is not what was stored", sha256=blob.sha256)


def _no_room(who: str, quota: int) -> OperationError:
    message = f"blobs have no room: {who} at most {quota} bytes"
    return OperationError("QUOTA_EXCEEDED", message, quota=quota)


def _size_of(depot: Depot, scope: str) -> int:
    return sum(stored.size for stored in depot.stored(scope))


def _size_of_all(depot: Depot) -> int:
    return sum(_size_of(depot, scope) for scope in depot.scopes())
