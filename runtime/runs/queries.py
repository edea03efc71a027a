"""The operations that only read runs: one run, lists, what was put out, logged and asked.

They need a log that can be read and a directory of its runs, and no event loop; a server offers
them together with those that change something (``perdure.runtime.runs.operations``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.actors.run.item_id import item_number
from perdure.actors.run.kind import RUN_KIND
from perdure.actors.run.views import log_line, question_view
from perdure.eventlog.errors import StoreDamaged
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.operations import operation
from perdure.runtime.kernel.principal import Permission, Principal
from perdure.runtime.runs.answers import (
    ExportPage,
    FoundRuns,
    HistoryPage,
    LogPage,
    QuestionPage,
    RunAnswer,
    RunPage,
)
from perdure.runtime.runs.requests import (
    Conditions,
    ExportRun,
    FindRuns,
    GetRun,
    ListRuns,
    ReadHistory,
    ReadLogs,
    ReadQuestions,
)
from perdure.runtime.runs.run_filter import RunFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.actors.folded import Folded
    from perdure.actors.run.core import Run
    from perdure.eventlog.record import Mark
    from perdure.runtime.kernel.actor_reader import Readable
    from perdure.runtime.runs.index import Listed, RunIndex
    from perdure.runtime.runs.reader import RunReader

FEW: Final = 5  # ids that begin with what was asked for
MOST_QUESTIONS: Final = 100  # in an answer
PAGE_BYTES: Final = 1 << 20  # of items, after which a page ends: many may be asked for at once


class RunQueries:
    """Everything that can be read of runs."""

    def __init__(self, log: Readable, index: RunIndex, reader: RunReader) -> None:
        """Read one log."""
        self._log = log
        self._index = index
        self._reader = reader

    @operation("runs.get", Permission.READ, "RUN_NOT_FOUND", "INVALID_CURSOR")
    async def get(self, principal: Principal, request: GetRun) -> RunAnswer:
        """Read a run, now or as it was."""
        return self._answer(*await self._reader.read(principal, request.run_id, request.at))

    @operation("runs.list", Permission.READ, "INVALID_CURSOR", page="list")
    async def list(self, principal: Principal, request: ListRuns) -> RunPage:
        """List runs, newest first, with the records they had at the place of the answer."""
        at = None if request.at is None else await self._reader.place(request.at)
        before = (
            None if request.after is None else (await self._log.resolve(request.after)).position
        )
        where = matching(principal, request)
        found, true_at = await self._index.list(
            where, before=before, at=at, limit=request.limit + 1
        )
        more = len(found) > request.limit
        found, next_after = await self._page(found[: request.limit], more=more)
        run_ids = [listed.run_id for listed in found]
        runs, unreadable = await self._reader.all_at(principal, run_ids, true_at)
        page: RunPage = {
            "runs": [RUN_KIND.view(folded) for folded in runs],
            "next_after": next_after,
            "cursor": self._log.cursor(true_at),
        }
        if unreadable:
            page["unreadable"] = unreadable
        return page

    async def _page(
        self, found: Sequence[Listed], *, more: bool
    ) -> tuple[Sequence[Listed], str | None]:
        """Give a page and the cursor that leads on, up to a run to which a cursor can be made."""
        damage: StoreDamaged | None = None
        for size in range(len(found), 0, -1) if more else ():
            try:
                mark = await self._log.in_thread(self._log.store.mark_at, found[size - 1].position)
            except StoreDamaged as error:
                damage = error
                continue
            return found[:size], None if mark is None else self._log.cursor(mark)
        if damage is not None:
            raise damage
        return found, None

    @operation("runs.find", Permission.READ)
    async def find(self, principal: Principal, request: FindRuns) -> FoundRuns:
        """Find the runs whose ids begin with a text: the first few."""
        found, at = await self._index.find(request.beginning, principal.tenant, FEW + 1)
        return {
            "run_ids": [*found[:FEW]],
            "more": len(found) > FEW,
            "cursor": self._log.cursor(at),
        }

    @operation("runs.export", Permission.READ, "RUN_NOT_FOUND", "INVALID_CURSOR", page="contents")
    async def export(self, principal: Principal, request: ExportRun) -> ExportPage:
        """Read export items in order, after an item or after a place in the log."""
        folded, at = await self._reader.read(principal, request.run_id, request.at)
        after = await self._last_seen(principal, folded, request.after)
        last = min(after + request.limit, folded.state.exports)
        items = await self._reader.items(folded, range(after + 1, last + 1), most=PAGE_BYTES)
        more = after + len(items) < folded.state.exports
        return {
            "items": items,
            "next_after": items[-1]["export_item_id"] if more else None,
            "cursor": self._log.cursor(at),
        }

    @operation("runs.logs", Permission.READ, "RUN_NOT_FOUND", "INVALID_CURSOR", page="contents")
    async def logs(self, principal: Principal, request: ReadLogs) -> LogPage:
        """Read the lines that a run has logged, in order; lines logged together stay together."""
        folded, at = await self._reader.read(principal, request.run_id, request.at)
        if request.last is not None:
            batches, more = await self._reader.last_log_batches(folded, request.last), None
        else:
            after = None if request.after is None else await self._log.resolve(request.after)
            batches, more = await self._reader.log_batches(folded, after, request.limit)
        created = folded.state.created
        lines = [log_line(created, line) for batch in batches for line in batch.lines]
        return {
            "lines": lines if request.last is None else lines[-request.last :],
            "dropped": sum(batch.dropped for batch in batches),
            "next_after": None if more is None else self._log.cursor(more),
            "cursor": self._log.cursor(at),
        }

    @operation("runs.history", Permission.READ, "RUN_NOT_FOUND", "INVALID_CURSOR", page="contents")
    async def history(self, principal: Principal, request: ReadHistory) -> HistoryPage:
        """Read what happened inside a run, in order: activations, steps, waits, exports, end."""
        folded, at = await self._reader.read(principal, request.run_id, request.at)
        before = None
        if request.after is not None:
            before = await self._before(principal, folded, await self._log.resolve(request.after))
        rows, more = await self._reader.history(folded, before, request.limit, most=PAGE_BYTES)
        return {
            "history": rows,
            "next_after": None if more is None else self._log.cursor(more),
            "cursor": self._log.cursor(at),
        }

    @operation(
        "runs.questions", Permission.READ, "RUN_NOT_FOUND", "INVALID_CURSOR", page="contents"
    )
    async def questions(self, principal: Principal, request: ReadQuestions) -> QuestionPage:
        """Read the questions of a run that are open, now or as they were."""
        folded, at = await self._reader.read(principal, request.run_id, request.at)
        asked = await self._reader.questions(folded, MOST_QUESTIONS, most=PAGE_BYTES)
        return {
            "questions": [question_view(each) for each in asked],
            "more": len(asked) < len(folded.state.asking),
            "cursor": self._log.cursor(at),
        }

    async def _last_seen(self, principal: Principal, folded: Folded[Run], after: str | None) -> int:
        """Give the number of the last item that somebody has seen who comes from there."""
        run = folded.state
        if after is None:
            return 0
        named = item_number(after)
        if named is not None:
            if named[0] != run.created.run_id or named[1] > run.exports:
                raise OperationError("INVALID_CURSOR", f"{after!r} is not an item of this run")
            return named[1]
        before = await self._before(principal, folded, await self._log.resolve(after))
        return 0 if before is None else before.state.exports

    async def _before(
        self, principal: Principal, folded: Folded[Run], place: Mark
    ) -> Folded[Run] | None:
        """Give a run as it was at a place, at the latest as it is; None if it did not exist yet."""
        if place.position >= folded.mark.position:
            return folded
        try:
            return await self._reader.at(principal, folded.state.created.run_id, place)
        except OperationError:
            return None

    def _answer(self, folded: Folded[Run], at: Mark | None = None) -> RunAnswer:
        return {
            "run": RUN_KIND.view(folded),
            "cursor": self._log.cursor(at or folded.mark),
        }


def matching(principal: Principal, wanted: Conditions) -> RunFilter:
    """Say which runs of a principal are meant."""
    return RunFilter(
        plugin_id=wanted.plugin_id,
        entry_id=wanted.entry_id,
        task_id=wanted.task_id,
        session_id=wanted.session_id,
        root_run_id=wanted.root_run_id,
        started_by=wanted.started_by,
        top_level=wanted.top_level,
        tenant=principal.tenant,
        statuses=None if wanted.status is None else frozenset(wanted.status),
        created_from=wanted.created_from,
        created_until=wanted.created_until,
    )
