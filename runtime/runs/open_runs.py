"""The runs that exist when somebody begins to follow them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.actors.run.status import OPEN
from perdure.actors.run.views import addition
from perdure.runtime.kernel.channels.event import Shown
from perdure.runtime.runs.index import RunFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.eventlog.record import Mark
    from perdure.runtime.kernel.principal import Principal
    from perdure.runtime.runs.live_index import Catalogue
    from perdure.runtime.runs.reader import RunReader
    from perdure.runtime.runs.requests import FollowLog


class Listing:
    """Runs as additions, page by page, all at one place in the log."""

    def __init__(
        self,
        catalogue: Catalogue,
        reader: RunReader,
        principal: Principal,
        request: FollowLog,
        at: Mark,
    ) -> None:
        """List what has not ended; a run that was asked for by its id is shown in any case."""
        self._catalogue = catalogue
        self._reader = reader
        self._principal = principal
        self._request = request
        self._at = at
        self._before: int | None = None
        self.more = True
        statuses = OPEN if request.status is None else OPEN & frozenset(request.status)
        self._where = RunFilter(
            tenant=principal.tenant,
            plugin_id=request.plugin_id,
            entry_id=request.entry_id,
            task_id=request.task_id,
            statuses=statuses,
        )

    async def next_page(self, limit: int) -> list[Shown]:
        """Give the next so many. Cancelling it loses nothing."""
        if self._request.run_id is not None:
            page = await self._additions([self._request.run_id])
            self.more = False
            return page
        found, _ = await self._catalogue.list(
            self._where, before=self._before, at=self._at, limit=limit
        )
        page = await self._additions([listed.run_id for listed in found])
        if found:
            self._before = found[-1].position
        self.more = len(found) == limit
        return page

    async def _additions(self, run_ids: Sequence[str]) -> list[Shown]:
        runs = await self._reader.all_at(self._principal, run_ids, self._at)
        return [
            Shown("run", self._at, addition(run.state, run.commit_time), is_listed=True)
            for run in runs
        ]
