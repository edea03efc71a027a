"""The operation that follows: who may, from where, and what of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from perdure.eventlog.filter import Filter
from perdure.eventlog.follow import FollowLimits
from perdure.runtime.kernel.channels.channel import CHANNELS
from perdure.runtime.kernel.channels.subscription import Following
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.operations import operation
from perdure.runtime.kernel.principal import Permission, Principal
from perdure.runtime.runs.answers import Frame
from perdure.runtime.runs.open_runs import Listing
from perdure.runtime.runs.reader import RunReader
from perdure.runtime.runs.requests import FollowLog

if TYPE_CHECKING:
    from perdure.eventlog.record import Mark
    from perdure.runtime.execution.host import Host
    from perdure.runtime.kernel.channels.subscription import HasEnded
    from perdure.runtime.runs.live_index import Catalogue

BATCH_BYTES: Final = 64 << 10  # of records in a delivery: a stalled follower holds some copies


class Channels:
    """The channels of one host."""

    def __init__(self, host: Host, catalogue: Catalogue) -> None:
        """Show what is in the host's log."""
        self._log = host.log
        self._catalogue = catalogue
        self._reader = RunReader(host.log, host.runs)
        self.limits = FollowLimits(bytes=BATCH_BYTES)
        self.followers = Counter[str]()  # how many follow, by surface

    @operation("log.follow", Permission.READ, "RUN_NOT_FOUND", "INVALID_CURSOR", frames=Frame)
    async def follow(self, principal: Principal, request: FollowLog) -> Following:
        """Follow changes of runs, their exports, or the log itself, from a cursor on."""
        if request.channel == "log" and Permission.OPERATE not in principal.permissions:
            raise OperationError("PERMISSION_DENIED", "the raw log is for operators")
        if request.channel == "run" and request.run_id is None:
            raise OperationError("VALIDATION_ERROR", "the channel run needs a run_id")
        if request.run_id is not None:
            await self._reader.require(principal, request.run_id)
        channel = CHANNELS[request.channel]
        where = channel.wants(principal, request)
        # Of one run everything is looked at, so that its end is seen on every channel.
        pulled = where if request.run_id is None else Filter(streams=where.streams)
        begin: str | Mark | None = request.after
        listing = None
        if request.channel == "runs" and request.after is None:
            begin = await self._log.head()
            listing = Listing(self._catalogue, self._reader, principal, request, begin)
        return Following(
            channel,
            where,
            await self._log.follow(begin, pulled, replace(self.limits, records=request.limit)),
            limit=request.limit,
            has_ended=self._end_of(principal, request),
            listing=listing,
        )

    def _end_of(self, principal: Principal, request: FollowLog) -> HasEnded | None:
        run_id = request.run_id
        return None if run_id is None else partial(self._has_ended, principal, run_id)

    async def _has_ended(self, principal: Principal, run_id: str, at: Mark) -> bool:
        folded = await self._reader.now(principal, run_id)
        return folded.state.status.is_terminal and folded.mark.position <= at.position
