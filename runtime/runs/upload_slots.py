"""The slots of uploads: so many may be open at once, in all and for one client.

An upload has its slot until it is finished, its run has ended or its time is over. When no slot is
free, an upload to which nothing was sent for some time gives way: nobody holds slots by doing
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from perdure.eventlog.units import NANOSECONDS
from perdure.runtime.blobs.store import Draft
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.principal import Principal
from perdure.runtime.runs.answers import BlobAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.eventlog.env import Env

UPLOAD_LIFE: Final = 3600.0  # seconds
UPLOAD_IDLE: Final = 60.0  # seconds without a byte, after which an upload gives way to another
MAX_UPLOADS: Final = 256  # open ones; each may have a file open
MAX_UPLOADS_OF_ONE: Final = 128  # of one client
MAX_CLOSED: Final = 4096  # kept for those who send again; the oldest are forgotten first


@dataclass(eq=False, slots=True)
class Upload:
    """Bytes on their way to a run."""

    upload_id: str
    principal: Principal
    run_id: str
    size_limit: int
    expires_at: int
    moved_at: int  # when bytes came last
    lock: trio.Lock = field(default_factory=trio.Lock)  # one writes at a time
    draft: Draft | None = None
    blob: BlobAnswer | None = None

    async def give_up(self) -> None:
        """Throw away what has come so far."""
        if self.draft is not None:
            draft, self.draft = self.draft, None
            await draft.aclose()


class UploadSlots:
    """All uploads that are open, and some that are closed: finished, or their run has ended."""

    def __init__(self, env: Env, life: float) -> None:
        """Begin with none; each lives for so many seconds."""
        self._env = env
        self.life = round(life * NANOSECONDS)
        self._open: dict[str, Upload] = {}  # at most MAX_UPLOADS
        self._closed: dict[str, Upload] = {}  # at most MAX_CLOSED, oldest first

    async def open(self, principal: Principal, run_id: str, size_limit: int) -> Upload:
        """Open an upload, or refuse it with OVERLOADED."""
        await self.drop_expired()
        while (crowded := self._crowded_for(principal)) is not None:
            await self._drop(self._idle_among(crowded))
        now = self._env.now()
        upload = Upload(
            str(self._env.new_id()), principal, run_id, size_limit, now + self.life, now
        )
        self._open[upload.upload_id] = upload
        return upload

    def find(self, principal: Principal, upload_id: str) -> Upload:
        """Find an upload that is open or was closed, of the same tenant."""
        upload = self._open.get(upload_id) or self._closed.get(upload_id)
        if (
            upload is None
            or upload.principal.tenant != principal.tenant
            or upload.expires_at <= self._env.now()
        ):
            raise no_upload(upload_id)
        return upload

    def finish(self, upload: Upload, blob: BlobAnswer) -> None:
        """Free a slot, and keep what has become of the upload, in case that nobody heard it."""
        upload.blob = blob
        self._close(upload)

    async def close_run(self, run_id: str) -> None:
        """Free the slots of a run that has ended; whoever still sends something is told so."""
        uploads = [each for each in self._open.values() if each.run_id == run_id]
        for upload in sorted(uploads, key=lambda each: each.lock.locked()):  # those wait for nobody
            async with upload.lock:
                self._close(upload)
                await upload.give_up()

    def _close(self, upload: Upload) -> None:
        self._open.pop(upload.upload_id, None)
        self._closed[upload.upload_id] = upload
        while len(self._closed) > MAX_CLOSED:
            del self._closed[next(iter(self._closed))]

    async def drop_expired(self) -> None:
        """Free the slots of uploads whose time is over, and forget closed ones."""
        now = self._env.now()
        for upload in [each for each in self._closed.values() if each.expires_at <= now]:
            del self._closed[upload.upload_id]
        await self._drop([each for each in self._open.values() if each.expires_at <= now])

    def _crowded_for(self, principal: Principal) -> list[Upload] | None:
        """Give the uploads among which one has to go before a client may open another."""
        mine = [each for each in self._open.values() if each.principal == principal]
        if len(mine) >= MAX_UPLOADS_OF_ONE:
            return mine
        return list(self._open.values()) if len(self._open) >= MAX_UPLOADS else None

    def _idle_among(self, uploads: list[Upload]) -> list[Upload]:
        """Give the upload that has been idle for longest, or refuse to open another."""
        latest = self._env.now() - round(UPLOAD_IDLE * NANOSECONDS)
        idle = [each for each in uploads if each.moved_at <= latest and not each.lock.locked()]
        if not idle:
            raise OperationError("OVERLOADED", "too many uploads are open; finish some, or wait")
        return [min(idle, key=lambda each: each.moved_at)]

    async def _drop(self, uploads: Iterable[Upload]) -> None:
        """Free slots; whoever writes to an upload right now keeps it until that is done."""
        free = [each for each in uploads if not each.lock.locked()]
        for upload in free:
            del self._open[upload.upload_id]
        for upload in free:
            await upload.give_up()


def no_upload(upload_id: str) -> OperationError:
    """Say that there is no such upload."""
    return OperationError("UPLOAD_NOT_FOUND", "no such upload is open", upload_id=upload_id)
