"""The operations on runs: what every surface binds to.

Each takes a principal and a request, and answers with the cursor up to which the answer is true.
Creating a run is an append of its own; its actor starts from the log. Streams without an actor
(claims, lineages) are written at the version just read, one caller at a time.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from actors.claim import CLAIM_EVENTS, SCHEME, ClaimMade, claim_stream, request_hash
from actors.lineage import LINEAGE_EVENTS, AttemptTaken, lineage_stream
from actors.mailbox import NoSuchActor
from actors.run.commands import Answer, RequestCancel
from actors.run.core import RUN
from actors.run.events import RUN_EVENTS, ExportAppended, RunCreated
from actors.run.status import CancelMode
from actors.run.views import export_item, record
from eventlog.append import Append, StreamWrite
from eventlog.errors import Conflict
from eventlog.record import Metadata
from runtime.directory import RunFilter
from runtime.errors import OperationError
from runtime.host import stream_of
from runtime.requests import GetRun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from actors.folded import Folded
    from actors.run.core import Run
    from eventlog.record import Mark, NewEvent, Record
    from eventlog.registry import EventRegistry
    from runtime.catalogue import Catalogue
    from runtime.host import Host
    from runtime.plugin import Entry
    from runtime.requests import AnswerRun, CancelRun, CreateRun, ExportRun, ListRuns, RetryRun

Decided = TypeVar("Decided")

CLAIM_WINDOW: Final = 24 * 3600 * 1_000_000_000
TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks."""

    tenant: str
    user: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.user}"


LOCAL: Final = Principal("local", "local")


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
        self._claim_window = claim_window
        self._queues: dict[str, trio.StrictFIFOLock] = {}  # actor-less streams being written

    # Creating

    async def create(self, principal: Principal, request: CreateRun) -> dict[str, Any]:
        """Accept a run, or find the one that the idempotency key stands for."""
        entry = self._entry(request.plugin_id, request.entry_id)
        _check_args(entry, request.args)
        created = self._new_run(principal, request, entry)
        if request.idempotency_key is None:
            return await self._append(created)
        return await self._create_once(principal, request, created)

    async def _create_once(
        self, principal: Principal, request: CreateRun, created: RunCreated
    ) -> dict[str, Any]:
        key = request.idempotency_key or ""
        stream = claim_stream(principal.tenant, principal.user, "runs.create", key)
        asked = request_hash(
            {"plugin_id": request.plugin_id, "entry_id": request.entry_id, "args": request.args}
        )

        async def decide(newest: Record | None) -> RunCreated | ClaimMade:
            claim = None if newest is None else await self._holding(CLAIM_EVENTS.decode(newest))
            return claim or created

        def event_for(created: RunCreated) -> NewEvent:
            made = ClaimMade(
                run_id=created.run_id,
                request_hash=asked,
                scheme=SCHEME,
                window=self._claim_window,
                at=created.at,
            )
            return self._event(CLAIM_EVENTS, made, principal)

        decided = await self._create_with(stream, decide, event_for)
        if isinstance(decided, ClaimMade):
            return await self._claimed(decided, asked)
        return decided

    async def _create_with(
        self,
        stream: str,
        decide: Callable[[Record | None], Awaitable[RunCreated | Decided]],
        event_for: Callable[[RunCreated], NewEvent],
    ) -> dict[str, Any] | Decided:
        """Create a run together with an event of a stream without an actor.

        ``decide`` sees the stream's newest record and gives the run to create, or an answer.
        """
        async with self._queued(stream):
            for _ in range(TRIES):
                page = await self._log.read_stream(stream)
                newest = page.records[-1] if page.records else None
                decided = await decide(newest)
                if not isinstance(decided, RunCreated):
                    return decided
                version = newest.version if newest else 0
                write = StreamWrite(stream, version, [event_for(decided)])
                try:
                    return await self._append(decided, write)
                except Conflict:
                    continue
        raise OperationError("CONFLICT", "others were faster five times in a row; try again")

    async def _append(self, created: RunCreated, *along: StreamWrite) -> dict[str, Any]:
        """Bring a run into being, with what belongs to it, and have it executed."""
        append = Append([*along, self._host.creation(created)])
        receipt = await self._log.append(append, new_work=True)
        return self._view(self._host.accept(created, receipt.records))

    def _event(self, registry: EventRegistry, event: Any, principal: Principal) -> NewEvent:  # noqa: ANN401
        return registry.encode(
            event,
            event_id=self._env.new_id().bytes,
            event_time=event.at,
            metadata=Metadata(principal=str(principal)),
        )

    async def _holding(self, claim: ClaimMade) -> ClaimMade | None:
        """Give a claim back if it still holds."""
        run = (await self._host.runs.look(stream_of(claim.run_id))).state
        over = claim.is_over(self._env.now(), run_has_ended=run.status.is_terminal)
        return None if over else claim

    async def _claimed(self, claim: ClaimMade, asked: str) -> dict[str, Any]:
        if claim.request_hash != asked:
            raise OperationError(
                "IDEMPOTENCY_CONFLICT",
                "this idempotency key was used for another request",
                run_id=claim.run_id,
                expected=claim.request_hash,
                actual=asked,
            )
        return self._view(await self._host.runs.look(stream_of(claim.run_id)))

    def _new_run(self, principal: Principal, request: CreateRun, entry: Entry) -> RunCreated:
        run_id = str(self._env.new_id())
        return RunCreated(
            run_id=run_id,
            plugin_id=request.plugin_id,
            entry_id=request.entry_id,
            args=request.args,
            tenant=principal.tenant,
            principal=principal.user,
            root_run_id=run_id,
            attempt=1,
            at=self._env.now(),
            task_id=request.task_id,
            trace_id=request.trace_id,
            idempotency_key=request.idempotency_key,
            timeout=request.timeout if request.timeout is not None else entry.timeout,
        )

    async def retry(self, principal: Principal, request: RetryRun) -> dict[str, Any]:
        """Run again what has ended: a new run, the next attempt of its root."""
        parent = (await self._look(request.run_id)).state
        if not parent.status.is_terminal:
            raise OperationError(
                "RUN_NOT_TERMINAL", f"the run is {parent.status}; cancel it first, or wait"
            )

        async def decide(newest: Record | None) -> RunCreated | dict[str, Any]:
            last = parent.created.attempt
            if newest is not None:
                last = LINEAGE_EVENTS.decode(newest).attempt
            return self._next_attempt(principal, parent, last + 1)

        def event_for(created: RunCreated) -> NewEvent:
            taken = AttemptTaken(run_id=created.run_id, attempt=created.attempt, at=created.at)
            return self._event(LINEAGE_EVENTS, taken, principal)

        stream = lineage_stream(parent.created.root_run_id)
        return await self._create_with(stream, decide, event_for)

    def _next_attempt(self, principal: Principal, parent: Run, attempt: int) -> RunCreated:
        before = parent.created
        return RunCreated(
            run_id=str(self._env.new_id()),
            plugin_id=before.plugin_id,
            entry_id=before.entry_id,
            args=before.args,
            tenant=principal.tenant,
            principal=principal.user,
            root_run_id=before.root_run_id,
            parent_run_id=before.run_id,
            attempt=attempt,
            at=self._env.now(),
            task_id=before.task_id,
            trace_id=before.trace_id,
            session_id=before.session_id,
            timeout=before.timeout,
        )

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

    def _entry(self, plugin_id: str, entry_id: str) -> Entry:
        plugin = self._host.plugins.get(plugin_id)
        if plugin is None:
            raise OperationError("PLUGIN_NOT_FOUND", f"no plugin {plugin_id!r} is loaded")
        entry = plugin.entries.get(entry_id)
        if entry is None:
            known = ", ".join(sorted(plugin.entries))
            raise OperationError(
                "ENTRY_NOT_FOUND", f"plugin {plugin_id!r} has no entry {entry_id!r}, but {known}"
            )
        return entry

    def _view(self, folded: Folded[Run]) -> dict[str, Any]:
        return self._answer(folded.state, folded.commit_time, folded.mark)

    def _answer(self, run: Run, commit_time: int, mark: Mark) -> dict[str, Any]:
        return {"run": record(run, commit_time), "cursor": self._log.cursor(mark)}

    @asynccontextmanager
    async def _queued(self, stream: str) -> AsyncIterator[None]:
        """Write a stream without an actor one caller at a time, so that nobody loses a race."""
        lock = self._queues.setdefault(stream, trio.StrictFIFOLock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and not lock.statistics().tasks_waiting:
                self._queues.pop(stream, None)


def _check_args(entry: Entry, args: dict[str, Any]) -> None:
    try:
        entry.check(args)
    except ValueError as error:
        raise OperationError("VALIDATION_ERROR", f"args: {error}") from error
