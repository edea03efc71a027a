"""The operations on runs: what every surface binds to.

Each takes a principal and a request, and answers with the cursor up to which the answer is true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors.mailbox import NoSuchActor
from actors.run.commands import Answer, RequestCancel
from actors.run.core import RUN
from actors.run.events import RUN_EVENTS, ExportAppended
from actors.run.status import CancelMode
from actors.run.views import export_item, record
from runtime.creation import CLAIM_WINDOW, Creation
from runtime.directory import RunFilter
from runtime.errors import OperationError
from runtime.host import stream_of
from runtime.requests import GetRun

if TYPE_CHECKING:
    from actors.folded import Folded
    from actors.run.core import Run
    from eventlog.record import Mark
    from runtime.catalogue import Catalogue
    from runtime.host import Host
    from runtime.principal import Principal
    from runtime.requests import AnswerRun, CancelRun, CreateRun, ExportRun, ListRuns, RetryRun


class Runs:
    """Everything that can be done with runs."""

    def __init__(
        self, host: Host, catalogue: Catalogue, *, claim_window: int = CLAIM_WINDOW
    ) -> None:
        """Work for one host."""
        self._host = host
        self._log = host.log
        self._env = host.env
        self._catalogue = catalogue
        self._creation = Creation(host, claim_window=claim_window)

    async def create(self, principal: Principal, request: CreateRun) -> dict[str, Any]:
        """Accept a run, or find the one that the idempotency key stands for."""
        return self._view(await self._creation.create(principal, request))

    async def retry(self, principal: Principal, request: RetryRun) -> dict[str, Any]:
        """Run again what has ended: a new run, the next attempt of its root."""
        parent = (await self._look(request.run_id)).state
        return self._view(await self._creation.retry(principal, parent))

    # Asking

    async def cancel(self, principal: Principal, request: CancelRun) -> dict[str, Any]:
        """Ask a run to end; one that has ended stays as it is."""
        command = RequestCancel(
            by=str(principal),
            reason=request.reason,
            mode=CancelMode.FORCE if request.force else CancelMode.COOPERATIVE,
            at=self._env.now(),
        )
        return self._view(await self._ask(principal, request.run_id, command))

    async def answer(self, principal: Principal, request: AnswerRun) -> dict[str, Any]:
        """Answer a question of a run."""
        command = Answer(
            question_id=request.question_id,
            answer=request.answer,
            by=str(principal),
            at=self._env.now(),
        )
        return self._view(await self._ask(principal, request.run_id, command))

    # Reading

    async def get(self, _: Principal, request: GetRun) -> dict[str, Any]:
        """Read a run, now or as it was."""
        if request.at is None:
            return self._view(await self._look(request.run_id))
        at = await self._place(request.at)
        run, commit_time, version = None, 0, 0
        while True:
            page = await self._log.read_stream(stream_of(request.run_id), after=version, at=at)
            for stored in page.records:
                run = RUN.evolve(run, RUN_EVENTS.decode(stored))
                commit_time, version = stored.commit_time, stored.version
            if not page.more:
                break
        if run is None:
            raise OperationError("RUN_NOT_FOUND", "there was no such run then")
        return self._answer(run, commit_time, at)

    async def list(self, principal: Principal, request: ListRuns) -> dict[str, Any]:
        """List runs, newest first, with the records they had at the place of the answer."""
        at = None if request.at is None else await self._place(request.at)
        before = (
            None if request.after is None else (await self._log.resolve(request.after)).position
        )
        where = RunFilter(
            plugin_id=request.plugin_id,
            entry_id=request.entry_id,
            task_id=request.task_id,
            session_id=request.session_id,
            root_run_id=request.root_run_id,
            tenant=principal.tenant,
            statuses=None if request.status is None else frozenset(request.status),
            created_from=request.created_from,
            created_until=request.created_until,
        )
        found, true_at = await self._catalogue.list(
            where, before=before, at=at, limit=request.limit
        )
        cursor = self._log.cursor(true_at)
        runs = [
            (await self.get(principal, GetRun(run_id=listed.run_id, at=cursor)))["run"]
            for listed in found
        ]
        next_after = None
        if len(found) == request.limit:
            mark = await self._log.in_thread(self._log.store.mark_at, found[-1].position)
            next_after = None if mark is None else self._log.cursor(mark)
        return {"runs": runs, "next_after": next_after, "cursor": cursor}

    async def export(self, _: Principal, request: ExportRun) -> dict[str, Any]:
        """Read export items in order, from an item's id on."""
        at = None if request.at is None else await self._place(request.at)
        after = await self._item_number(request.run_id, request.after)
        items: list[dict[str, Any]] = []
        version, more = 0, False
        while True:
            page = await self._log.read_stream(stream_of(request.run_id), after=version, at=at)
            for stored in page.records:
                version = stored.version
                if stored.name != ExportAppended.event_name:
                    continue
                item: ExportAppended = RUN_EVENTS.decode(stored)
                if item.number > after:
                    more = len(items) == request.limit
                    if more:
                        break
                    items.append(export_item(request.run_id, item))
            if more or not page.more:
                break
        if version == 0:
            raise OperationError("RUN_NOT_FOUND", "there is no such run")
        next_after = items[-1]["export_item_id"] if more else None
        return {"items": items, "next_after": next_after, "cursor": page.cursor}

    async def _item_number(self, run_id: str, item_id: str | None) -> int:
        if item_id is None:
            return 0
        of_run, _, number = item_id.rpartition(".")
        exports = (await self._look(run_id)).state.exports
        if of_run != run_id or not number.isdigit() or not 1 <= int(number) <= exports:
            raise OperationError("INVALID_CURSOR", f"{item_id!r} is not an item of this run")
        return int(number)

    # Inside

    async def _place(self, at: str | int) -> Mark:
        if isinstance(at, int):
            return await self._log.mark_before(at)
        return await self._log.resolve(at)

    async def _look(self, run_id: str) -> Folded[Run]:
        try:
            return await self._host.runs.look(stream_of(run_id))
        except NoSuchActor:
            raise OperationError("RUN_NOT_FOUND", "there is no such run", run_id=run_id) from None

    async def _ask(
        self, principal: Principal, run_id: str, command: RequestCancel | Answer
    ) -> Folded[Run]:
        try:
            return await self._host.runs.ask(stream_of(run_id), command, principal=str(principal))
        except NoSuchActor:
            raise OperationError("RUN_NOT_FOUND", "there is no such run", run_id=run_id) from None

    def _view(self, folded: Folded[Run]) -> dict[str, Any]:
        return self._answer(folded.state, folded.commit_time, folded.mark)

    def _answer(self, run: Run, commit_time: int, mark: Mark) -> dict[str, Any]:
        return {"run": record(run, commit_time), "cursor": self._log.cursor(mark)}
