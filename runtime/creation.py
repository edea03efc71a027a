"""Bringing runs into being: each once, each with its number.

Creating a run is an append of its own; its actor starts from what was written. A key's claim or a
lineage's next attempt is written in the same append. Those streams have no actor: they are written
at the version just read, one caller at a time, and a conflict reads again and decides again.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from actors.claim import CLAIM_EVENTS, SCHEME, ClaimMade, claim_stream, request_hash
from actors.lineage import LINEAGE_EVENTS, AttemptTaken, lineage_stream
from actors.run.events import RunCreated
from eventlog.append import Append, StreamWrite
from eventlog.errors import Conflict
from eventlog.record import Metadata
from runtime.entries import check_args
from runtime.errors import OperationError
from runtime.streams import stream_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from actors.folded import Folded
    from actors.run.core import Run
    from eventlog.record import NewEvent, Record
    from eventlog.registry import EventRegistry
    from runtime.host import Host
    from runtime.plugin import Entry
    from runtime.principal import Principal
    from runtime.requests import CreateRun

Decided = TypeVar("Decided")

CLAIM_WINDOW: Final = 24 * 3600 * 1_000_000_000
TRIES: Final = 5


class Creation:
    """Creates runs for one host."""

    def __init__(self, host: Host, *, claim_window: int = CLAIM_WINDOW) -> None:
        """Keys are free again after a window, in nanoseconds, and when their run has ended."""
        self._host = host
        self._log = host.log
        self._env = host.env
        self._claim_window = claim_window
        self._queues: dict[str, trio.StrictFIFOLock] = {}  # actor-less streams being written

    async def create(self, principal: Principal, request: CreateRun) -> Folded[Run]:
        """Accept a run, or find the one that the idempotency key stands for."""
        entry = self._host.entries.find(request.plugin_id, request.entry_id)
        check_args(entry, request.args)
        created = self._new_run(principal, request, entry)
        if request.idempotency_key is None:
            return await self._append(created)
        return await self._create_once(principal, request, created)

    async def _create_once(
        self, principal: Principal, request: CreateRun, created: RunCreated
    ) -> Folded[Run]:
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
    ) -> Folded[Run] | Decided:
        """Create a run together with an event of a stream without an actor.

        ``decide`` sees the stream's newest record and gives the run to create, or an answer.
        """
        async with self._queued(stream):
            for _ in range(TRIES):
                newest = await self._newest(stream)
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

    async def _append(self, created: RunCreated, *along: StreamWrite) -> Folded[Run]:
        """Bring a run into being, with what belongs to it, and have it executed."""
        append = Append([*along, self._host.creation(created)])
        receipt = await self._log.append(append, new_work=True)
        return self._host.accept(created, receipt.records)

    async def _newest(self, stream: str) -> Record | None:
        """Read the last record of a stream."""
        newest: Record | None = None
        while True:
            after = newest.version if newest is not None else 0
            page = await self._log.read_stream(stream, after=after)
            newest = page.records[-1] if page.records else newest
            if not page.more:
                return newest

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

    async def _claimed(self, claim: ClaimMade, asked: str) -> Folded[Run]:
        if claim.request_hash != asked:
            raise OperationError(
                "IDEMPOTENCY_CONFLICT",
                "this idempotency key was used for another request",
                run_id=claim.run_id,
                expected=claim.request_hash,
                actual=asked,
            )
        return await self._host.runs.look(stream_of(claim.run_id))

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
            timeout=self._host.limits.timeout_of(
                request.timeout if request.timeout is not None else entry.timeout
            ),
        )

    async def retry(self, principal: Principal, parent: Run) -> Folded[Run]:
        """Create the next attempt of what has ended."""
        if not parent.status.is_terminal:
            raise OperationError(
                "RUN_NOT_TERMINAL", f"the run is {parent.status}; cancel it first, or wait"
            )

        async def decide(newest: Record | None) -> RunCreated | Folded[Run]:
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
