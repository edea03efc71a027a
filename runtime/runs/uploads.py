"""The operations on blobs: bringing bytes to a run, reading them, removing what nobody names.

Bytes are no JSON: a surface opens an upload with ``blobs.create_upload``, then streams into
``receive`` (or ``write`` and ``finish``), and streams out of ``open``. An upload lives in memory
and its bytes in a draft, so one that is abandoned, by its client or with this process, leaves
nothing.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import trio

from perdure.actors.run.status import Status
from perdure.actors.run.views import seconds
from perdure.eventlog.errors import LogClosed
from perdure.eventlog.units import NANOSECONDS
from perdure.runtime.blobs.blob import Blob, blob_path, scope_of
from perdure.runtime.blobs.references import named_by
from perdure.runtime.execution.run_ends import LetGo
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.operations import operation
from perdure.runtime.kernel.principal import Permission, Principal
from perdure.runtime.runs.answers import BlobAnswer, BlobPiece, CollectionAnswer, UploadAnswer
from perdure.runtime.runs.requests import CollectBlobs, CreateUpload, ReadBlob
from perdure.runtime.runs.upload_slots import UPLOAD_LIFE, Upload, UploadSlots, no_upload

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable

    from perdure.actors.folded import Folded
    from perdure.actors.run.core import Run
    from perdure.runtime.blobs.references import References
    from perdure.runtime.blobs.store import BlobReading, Draft
    from perdure.runtime.execution.host_context import HostContext
    from perdure.runtime.runs.reader import RunReader

COLLECT_EVERY: Final = 3600.0  # seconds
_ACTIVE: Final = frozenset({Status.RUNNING, Status.CANCEL_REQUESTED})
_log = logging.getLogger("perdure.blobs")


class Uploads:
    """Everything that can be done with blobs from outside."""

    def __init__(
        self,
        context: HostContext,
        reader: RunReader,
        references: References,
        end_of: Callable[[str], Awaitable[object]],
        *,
        upload_life: float = UPLOAD_LIFE,
    ) -> None:
        """Take in bytes for runs that the reader finds; ``end_of`` waits for the end of one."""
        self._store = context.blobs
        self._log = context.log
        self._env = context.env
        self._reader = reader
        self._references = references
        self._end_of = end_of
        self.slots = UploadSlots(context.env, upload_life)
        self._nursery: trio.Nursery | None = None
        self._watched: set[str] = set()  # runs that have, or had, an upload; until they end

    async def run(self) -> None:
        """Free the slots of runs that end, and remove now and then what nobody needs any more."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await self._collect_again_and_again()
            finally:
                self._nursery = None
            nursery.cancel_scope.cancel()

    async def _collect_again_and_again(self) -> None:
        while True:
            await self._env.sleep(COLLECT_EVERY)
            try:
                await self.slots.drop_expired()
                await self._store.collect(partial(named_by, self._log, self._references))
            except LogClosed:
                return
            except Exception:  # noqa: BLE001 - the edge of a task: nothing else depends on it
                _log.exception("blobs cannot be collected now; the next time may do")

    def _watch(self, run_id: str) -> None:
        """See to it that the slots of a run are free once it has ended."""
        if self._nursery is not None and run_id not in self._watched:
            self._watched.add(run_id)
            self._nursery.start_soon(self._free_with, run_id)

    async def _free_with(self, run_id: str) -> None:
        try:
            await self._end_of(run_id)
        except (LetGo, LogClosed):
            return  # this process goes down, and its uploads with it
        except Exception:  # noqa: BLE001 - the edge of a task: its uploads end with their time
            _log.warning("the end of run %s cannot be waited for", run_id, exc_info=True)
            return
        finally:
            self._watched.discard(run_id)
        await self.slots.close_run(run_id)

    # Uploads

    @operation(
        "blobs.create_upload",
        Permission.RUN,
        "RUN_NOT_FOUND",
        "RUN_NOT_RUNNING",
        "PAYLOAD_TOO_LARGE",
    )
    async def create_upload(self, principal: Principal, request: CreateUpload) -> UploadAnswer:
        """Open an upload of bytes for a run that is running; they are streamed to it next."""
        folded = await self._active(principal, request.run_id)
        most = self._store.limits.scope_quota
        if request.size_limit is not None and request.size_limit > most:
            raise OperationError(
                "PAYLOAD_TOO_LARGE", f"a run may have {most} bytes of blobs", limit=most
            )
        upload = await self.slots.open(principal, request.run_id, request.size_limit or most)
        self._watch(request.run_id)
        return {
            "upload_id": upload.upload_id,
            "run_id": upload.run_id,
            "size_limit": upload.size_limit,
            "expires_at": seconds(upload.expires_at),
            "cursor": self._log.cursor(folded.mark),
        }

    async def receive(
        self, principal: Principal, upload_id: str, chunks: AsyncIterable[bytes]
    ) -> BlobAnswer:
        """Take in all of an upload and finish it.

        If it breaks off, or if nobody heard that it was finished, it can be sent again.
        """
        upload = self.slots.find(principal, upload_id)
        left = (upload.expires_at - self._env.now()) / NANOSECONDS
        with trio.move_on_after(left):
            async with upload.lock:
                await upload.give_up()
                if upload.blob is not None:
                    return await _received_again(upload.blob, chunks)
                try:
                    async for chunk in chunks:
                        await self._write(upload, chunk)
                    return await self._finish(upload)
                finally:
                    await upload.give_up()
        raise no_upload(upload_id)

    async def write(self, principal: Principal, upload_id: str, data: bytes) -> int:
        """Add bytes to an upload; give how many it has."""
        upload = self.slots.find(principal, upload_id)
        async with upload.lock:
            return await self._write(upload, data)

    async def finish(self, principal: Principal, upload_id: str) -> BlobAnswer:
        """Make a blob of an upload; when it has returned, the blob survives a power cut."""
        upload = self.slots.find(principal, upload_id)
        async with upload.lock:
            return await self._finish(upload)

    async def _write(self, upload: Upload, data: bytes) -> int:
        self.slots.find(upload.principal, upload.upload_id)  # it may expire on the way
        if upload.blob is not None:
            raise OperationError("UPLOAD_NOT_FOUND", "this upload is finished")
        try:
            draft = await self._draft(upload)
            await draft.write(data)
            upload.moved_at = self._env.now()
        except BaseException:
            await upload.give_up()
            raise
        return draft.size

    async def _finish(self, upload: Upload) -> BlobAnswer:
        self.slots.find(upload.principal, upload.upload_id)
        if upload.blob is not None:
            return upload.blob
        draft = await self._draft(upload)
        try:
            await self._active(upload.principal, upload.run_id)
            size, blob = draft.size, await draft.publish()
            path = blob_path(upload.run_id, blob.sha256)
            answer: BlobAnswer = {"binary_url": path, "sha256": blob.sha256, "size": size}
            self.slots.finish(upload, answer)
        finally:
            await upload.give_up()
        return answer

    async def _draft(self, upload: Upload) -> Draft:
        if upload.draft is None:
            run = (await self._active(upload.principal, upload.run_id)).state
            upload.draft = self._store.new_draft(scope_of(run), limit=upload.size_limit)
        return upload.draft

    async def _active(self, principal: Principal, run_id: str) -> Folded[Run]:
        folded = await self._reader.now(principal, run_id)
        status = folded.state.status
        if status not in _ACTIVE:
            raise OperationError("RUN_NOT_RUNNING", f"the run is {status}", status=str(status))
        return folded

    # Reading

    @operation(
        "blobs.read",
        Permission.READ,
        "RUN_NOT_FOUND",
        "BLOB_NOT_FOUND",
        "BLOB_DAMAGED",
        "INVALID_RANGE",
        page="contents",
    )
    async def read(self, principal: Principal, request: ReadBlob) -> BlobPiece:
        """Read a range of a blob, a MiB at most."""
        folded = await self._reader.now(principal, request.run_id)
        blob = Blob(scope_of(folded.state), request.sha256)
        async with self._store.open(blob) as content:
            return {
                "data": await content.read(request.start, request.length),
                "start": request.start,
                "size": content.size,
                "sha256": blob.sha256,
                "cursor": self._log.cursor(folded.mark),
            }

    @asynccontextmanager
    async def open(
        self, principal: Principal, run_id: str, sha256: str
    ) -> AsyncIterator[BlobReading]:
        """Open a blob, for a surface that streams it."""
        folded = await self._reader.now(principal, run_id)
        async with self._store.open(Blob(scope_of(folded.state), sha256)) as content:
            yield content

    # Collecting

    @operation("blobs.collect", Permission.OPERATE)
    async def collect(
        self,
        principal: Principal,  # noqa: ARG002 - all of them are looked at
        request: CollectBlobs,  # noqa: ARG002 - it asks for nothing
    ) -> CollectionAnswer:
        """Remove blobs that nothing in the log names and that are older than the grace period."""
        removed = await self._store.collect(partial(named_by, self._log, self._references))
        return {
            "blobs": removed.blobs,
            "bytes": removed.bytes,
            "cursor": self._log.cursor(await self._log.head()),
        }


async def _received_again(blob: BlobAnswer, chunks: AsyncIterable[bytes]) -> BlobAnswer:
    """Give the blob that an upload has become, to somebody who sends the same bytes again."""
    check, size = sha256(), 0
    async for chunk in chunks:
        size += len(chunk)
        if size > blob["size"]:
            break
        check.update(chunk)
    if size == blob["size"] and check.hexdigest() == blob["sha256"]:
        return blob
    raise OperationError("UPLOAD_NOT_FOUND", "this upload is finished, with other bytes")
