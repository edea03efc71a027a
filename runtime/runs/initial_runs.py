"""The runs that have not ended when a follower begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.actors.run.status import OPEN
from perdure.actors.run.views import addition
from perdure.runtime.kernel.channels.event import ChannelEvent
from perdure.runtime.runs.run_filter import RunFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.eventlog.record import Mark
    from perdure.runtime.kernel.principal import Principal
    from perdure.runtime.runs.channels import RunFilters
    from perdure.runtime.runs.index import RunIndex
    from perdure.runtime.runs.reader import RunReader


class InitialRuns:
    """Runs as additions, page by page, all at one place in the log."""

    def __init__(
        self,
        index: RunIndex,
        reader: RunReader,
        principal: Principal,
        filters: RunFilters,
        at: Mark,
    ) -> None:
        """List what has not ended; a run that was asked for by its id is shown in any case."""
        self._index = index
        self._reader = reader
        self._principal = principal
        self._run_id = filters.run_id
        self.at = at
        self._before: int | None = None
        self.more = True
        statuses = OPEN if filters.status is None else OPEN & frozenset(filters.status)
        self._where = RunFilter(
            tenant=principal.tenant,
            plugin_id=filters.plugin_id,
            entry_id=filters.entry_id,
            task_id=filters.task_id,
            started_by=filters.started_by,
            statuses=statuses,
        )

    async def next_page(self, limit: int) -> list[ChannelEvent]:
        """Give the next so many. Cancelling it loses nothing."""
        if self._run_id is not None:
            page = await self._additions([self._run_id])
            self.more = False
            return page
        found, _ = await self._index.list(self._where, before=self._before, at=self.at, limit=limit)
        page = await self._additions([listed.run_id for listed in found])
        if found:
            self._before = found[-1].position
        self.more = len(found) == limit
        return page

    async def _additions(self, run_ids: Sequence[str]) -> list[ChannelEvent]:
        runs, _ = await self._reader.all_at(self._principal, run_ids, self.at)
        return [
            ChannelEvent("run", self.at, addition(run.state, run.commit_time), is_listed=True)
            for run in runs
        ]
