"""Streams without an actor: written at the version just read, one caller at a time."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from perdure.eventlog.errors import Conflict
from perdure.runtime.kernel.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from perdure.eventlog.log import EventLog
    from perdure.eventlog.record import Record

TRIES: Final = 5
Result = TypeVar("Result")


class OwnerlessStreams:
    """Streams without an actor: claims and lineages."""

    def __init__(self, log: EventLog) -> None:
        """Nobody waits yet."""
        self._log = log
        self._queues: dict[str, trio.StrictFIFOLock] = {}  # of streams that are being written

    async def write(
        self,
        streams: Sequence[str],
        attempt: Callable[[Sequence[Record | None]], Awaitable[Result]],
    ) -> Result:
        """Let a caller write to streams; it is given their newest records, and may decide again.

        A caller that meets a conflict with another process is called again, five times at most.
        """
        async with AsyncExitStack() as queues:
            for stream in streams:  # claims before lineages, everywhere: nobody waits in a circle
                await queues.enter_async_context(self._queued(stream))
            for _ in range(TRIES):
                try:
                    return await attempt([await self._newest(stream) for stream in streams])
                except Conflict:
                    continue
        raise OperationError("CONFLICT", "others were faster five times in a row; try again")

    async def _newest(self, stream: str) -> Record | None:
        """Read the last record of a stream."""
        newest: Record | None = None
        while True:
            after = newest.version if newest is not None else 0
            page = await self._log.read_stream(stream, after=after)
            newest = page.records[-1] if page.records else newest
            if not page.more:
                return newest

    @asynccontextmanager
    async def _queued(self, stream: str) -> AsyncIterator[None]:
        lock = self._queues.setdefault(stream, trio.StrictFIFOLock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and not lock.statistics().tasks_waiting:
                self._queues.pop(stream, None)
