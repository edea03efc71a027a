"""The operations on runs.

Each takes a principal and a request, and answers with the cursor up to which the answer is true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from actors.run.commands import Answer, RequestCancel
from actors.run.status import CancelMode
from actors.run.views import item_number, record
from runtime.answers import ExportPage, RunAnswer, RunPage
from runtime.creation import CLAIM_WINDOW, Creation
from runtime.directory import RunFilter
from runtime.errors import OperationError
from runtime.operations import operation
from runtime.principal import Permission, Principal
from runtime.reader import RunReader
from runtime.requests import (
    AnswerRun,
    CancelRun,
    CreateRun,
    ExportRun,
    GetRun,
    ListRuns,
    RetryRun,
)
from runtime.streams import stream_of

if TYPE_CHECKING:
    from actors.folded import Folded
    from actors.run.core import Run
    from eventlog.record import Mark
    from runtime.catalogue import Catalogue
    from runtime.host import Host


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
        self._reader = RunReader(host)
        self._creation = Creation(host, claim_window=claim_window)

    # Beginning

    @operation(
        "runs.create",
        Permission.RUN,
        "PLUGIN_NOT_FOUND",
        "ENTRY_NOT_FOUND",
        "IDEMPOTENCY_CONFLICT",
        "CONFLICT",
    )
    async def create(self, principal: Principal, request: CreateRun) -> RunAnswer:
        """Accept a run, or find the one that the idempotency key stands for."""
        created = await self._creation.create(principal, request)
        if request.mode == "async":
            return self._answer(created)
        with trio.move_on_after(self._host.limits.sync_wait):
            ended = await self._host.end_of(created.state.created.run_id)
            answer = self._answer(ended)
            answer["result"] = await self._reader.items(ended, ended.state.result)
            return answer
        return self._answer(await self._reader.now(principal, created.state.created.run_id))

    @operation("runs.retry", Permission.RUN, "RUN_NOT_FOUND", "RUN_NOT_TERMINAL", "CONFLICT")
    async def retry(self, principal: Principal, request: RetryRun) -> RunAnswer:
        """Run again what has ended: a new run, the next attempt of its root."""
        parent = await self._reader.now(principal, request.run_id)
        return self._answer(await self._creation.retry(principal, parent.state))

    # Asking

    @operation("runs.cancel", Permission.CANCEL, "RUN_NOT_FOUND")
    async def cancel(self, principal: Principal, request: CancelRun) -> RunAnswer:
        """Ask a run to end; one that has ended stays as it is."""
        command = RequestCancel(
            by=str(principal),
            reason=request.reason,
            mode=CancelMode.FORCE if request.force else CancelMode.COOPERATIVE,
            at=self._env.now(),
        )
        return await self._ask(principal, request.run_id, command)

    @operation(
        "runs.answer",
        Permission.RUN,
        "RUN_NOT_FOUND",
        "RUN_NOT_RUNNING",
        "QUESTION_NOT_FOUND",
        "ALREADY_ANSWERED",
    )
    async def answer(self, principal: Principal, request: AnswerRun) -> RunAnswer:
        """Answer a question of a run."""
        command = Answer(
            question_id=request.question_id,
            answer=request.answer,
            by=str(principal),
            at=self._env.now(),
        )
        return await self._ask(principal, request.run_id, command)

    # Reading

    @operation("runs.get", Permission.READ, "RUN_NOT_FOUND", "INVALID_CURSOR")
    async def get(self, principal: Principal, request: GetRun) -> RunAnswer:
        """Read a run, now or as it was."""
        return self._answer(*await self._read(principal, request.run_id, request.at))

    @operation("runs.list", Permission.READ, "INVALID_CURSOR")
    async def list(self, principal: Principal, request: ListRuns) -> RunPage:
        """List runs, newest first, with the records they had at the place of the answer."""
        at = None if request.at is None else await self._reader.place(request.at)
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
            where, before=before, at=at, limit=request.limit + 1
        )
        more = len(found) > request.limit
        found = found[: request.limit]
        run_ids = [listed.run_id for listed in found]
        runs = await self._reader.all_at(principal, run_ids, true_at)
        next_after = None
        if more:
            mark = await self._log.in_thread(self._log.store.mark_at, found[-1].position)
            next_after = None if mark is None else self._log.cursor(mark)
        return {
            "runs": [record(folded.state, folded.commit_time) for folded in runs],
            "next_after": next_after,
            "cursor": self._log.cursor(true_at),
        }

    @operation("runs.export", Permission.READ, "RUN_NOT_FOUND", "INVALID_CURSOR")
    async def export(self, principal: Principal, request: ExportRun) -> ExportPage:
        """Read export items in order, from an item's id on."""
        folded, at = await self._read(principal, request.run_id, request.at)
        after = _item_number(folded.state, request.after)
        last = min(after + request.limit, folded.state.exports)
        items = await self._reader.items(folded, range(after + 1, last + 1))
        more = last < folded.state.exports
        return {
            "items": items,
            "next_after": items[-1]["export_item_id"] if more else None,
            "cursor": self._log.cursor(at),
        }

    # Inside

    async def _read(
        self, principal: Principal, run_id: str, at: str | int | None
    ) -> tuple[Folded[Run], Mark]:
        """Give a run, now or as it was, and the place at which this is true."""
        if at is None:
            folded = await self._reader.now(principal, run_id)
            return folded, folded.mark
        place = await self._reader.place(at)
        return await self._reader.at(principal, run_id, place), place

    async def _ask(
        self, principal: Principal, run_id: str, command: RequestCancel | Answer
    ) -> RunAnswer:
        await self._reader.require(principal, run_id)
        folded = await self._host.runs.ask(stream_of(run_id), command, principal=str(principal))
        return self._answer(folded)

    def _answer(self, folded: Folded[Run], at: Mark | None = None) -> RunAnswer:
        return {
            "run": record(folded.state, folded.commit_time),
            "cursor": self._log.cursor(at or folded.mark),
        }


def _item_number(run: Run, item_id: str | None) -> int:
    """Give the number of an item that a page goes on from."""
    if item_id is None:
        return 0
    named = item_number(item_id)
    if named is None or named[0] != run.created.run_id or named[1] > run.exports:
        raise OperationError("INVALID_CURSOR", f"{item_id!r} is not an item of this run")
    return named[1]
