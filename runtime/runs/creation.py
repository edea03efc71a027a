"""Creating runs by request: each once, each with its number.

The creator of runs (``perdure.runtime.execution.creator``) does it; here is what belongs to a
request. A key's claim or a lineage's next attempt is written in the same append as the run. Those
streams have no actor: they are written at the version just read, one caller at a time, and a
conflict reads again and decides again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure.actors.claim import CLAIM_EVENTS, ClaimMade
from perdure.actors.lineage import LINEAGE_EVENTS, AttemptTaken, lineage_stream
from perdure.actors.run.events import RunCreated
from perdure.actors.run.stream import stream_of
from perdure.eventlog.append import StreamWrite
from perdure.eventlog.record import Metadata
from perdure.runtime.kernel.claims import CLAIM_WINDOW, Claims, Hidden
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.invalid_value import invalid
from perdure.runtime.kernel.ownerless import OwnerlessStreams
from perdure.runtime.secrets.redaction import PLAIN_VALUE, holds_a_secret
from perdure.runtime.secrets.secret import is_sealed
from perdure.runtime.secrets.secrets import secret_required

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from perdure.actors.claim import Subject
    from perdure.actors.folded import Folded
    from perdure.actors.run.core import Run
    from perdure.eventlog.record import NewEvent, Record
    from perdure.eventlog.registry import EventRegistry
    from perdure.runtime.execution.creator import NewRun
    from perdure.runtime.execution.executor import Executor
    from perdure.runtime.kernel.claims import Claim
    from perdure.runtime.kernel.principal import Principal
    from perdure.runtime.runs.requests import CreateRun
    from perdure.runtime.runs.settings import UnknownEntries
    from perdure.runtime.secrets.secrets import Accepted


class Superseded(Exception):
    """The run has another attempt already."""


class Creation:
    """Creates runs by request: once for each key, and one attempt after the other."""

    def __init__(
        self,
        executor: Executor,
        *,
        claim_window: int = CLAIM_WINDOW,
        unknown_entries: UnknownEntries = "refuse",
        take_up: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """Keys are free again after a window, in nanoseconds, and when their run has ended.

        A run of an unknown entry is refused, or created and left to fail. ``take_up`` is called for
        the run that a key stands for, if nobody else executes it.
        """
        context = executor.context
        self._creator = executor.creator
        self._runs = executor.runs
        self._entries = context.entries
        self._env = context.env
        self._window = claim_window
        self._take_up = take_up
        self._unknown_entries = unknown_entries
        self._claims = Claims(context.env, context.secrets.hash_key)
        self._streams = OwnerlessStreams(context.log)

    async def create(self, principal: Principal, request: CreateRun) -> Folded[Run]:
        """Accept a run, or find the one that the idempotency key stands for."""
        new = await self._accept(principal, request)
        _check_names(request, new.accepted)
        created = replace(
            self._creator.created(new, principal.tenant, principal.user, timeout=request.timeout),
            task_id=request.task_id,
            trace_id=request.trace_id,
            idempotency_key=request.idempotency_key,
        )
        if request.idempotency_key is None:
            begin = partial(self._creator.append, new, created)
        else:
            begin = partial(self._create_once, principal, request, new, created)
        folded = await self._creator.sealed(new, begin)
        if self._take_up is not None and folded.state.created.run_id != new.run_id:
            await self._take_up(folded.state.created.run_id)
        return folded

    async def _accept(self, principal: Principal, request: CreateRun) -> NewRun:
        run_id, plugin_id, entry_id = self._new_id(), request.plugin_id, request.entry_id
        is_known = self._entries.get(plugin_id, entry_id) is not None
        if not is_known and self._unknown_entries == "fail":
            return self._creator.accept_unknown(run_id, plugin_id, entry_id)
        return await self._creator.accept(
            run_id, plugin_id, entry_id, request.args, principal.tenant
        )

    async def _create_once(
        self, principal: Principal, request: CreateRun, new: NewRun, created: RunCreated
    ) -> Folded[Run]:
        claim = await self._claims.asked(
            principal,
            "runs.create",
            request.idempotency_key or "",
            {"plugin_id": request.plugin_id, "entry_id": request.entry_id},
            args=_hidden(request.args, created.args),
        )

        async def decide(newest: Sequence[Record | None]) -> RunCreated | Folded[Run]:
            return await self._holder(claim, newest[0]) or created

        def events_for(created: RunCreated) -> list[NewEvent]:
            return [self._event(CLAIM_EVENTS, self._claim_of(claim, created), principal)]

        return await self._create_with(new, [claim.stream], decide, events_for)

    async def _create_with(
        self,
        new: NewRun,
        streams: Sequence[str],
        decide: Callable[[Sequence[Record | None]], Awaitable[RunCreated | Folded[Run]]],
        events_for: Callable[[RunCreated], Sequence[NewEvent]],
    ) -> Folded[Run]:
        """Create a run together with an event of each of some streams without an actor.

        ``decide`` sees the streams' newest records and gives the run to create, or one that exists.
        """

        async def attempt(newest: Sequence[Record | None]) -> Folded[Run]:
            decided = await decide(newest)
            if not isinstance(decided, RunCreated):
                return decided
            writes = [
                StreamWrite(stream, record.version if record else 0, [event])
                for stream, record, event in zip(streams, newest, events_for(decided), strict=True)
            ]
            return await self._creator.append(new, decided, *writes)

        return await self._streams.write(streams, attempt)

    async def _holder(self, claim: Claim, newest: Record | None) -> Folded[Run] | None:
        """Give the run that a key stands for; None if it is free."""
        runs = self._runs

        async def has_ended(subject: Subject) -> bool:
            return (await runs.look(stream_of(subject.object_id))).state.status.is_terminal

        subject = await self._claims.holder(claim, newest, has_ended)
        return None if subject is None else await runs.look(stream_of(subject.object_id))

    def _claim_of(self, claim: Claim, created: RunCreated) -> ClaimMade:
        """Give the event that binds a key to a run, as it has been stored from the beginning."""
        return ClaimMade(
            run_id=created.run_id,
            request_hash=claim.request_hash,
            scheme=claim.scheme,
            window=self._window,
            at=created.at,
        )

    def _event(self, registry: EventRegistry, event: Any, principal: Principal) -> NewEvent:  # noqa: ANN401
        return registry.encode(
            event,
            event_id=self._env.new_id().bytes,
            event_time=event.at,
            metadata=Metadata(principal=str(principal)),
        )

    def _new_id(self) -> str:
        return str(self._env.new_id())

    async def retry(
        self,
        principal: Principal,
        parent: Run,
        *,
        secrets: dict[str, Any] | None = None,
        key: str | None = None,
    ) -> Folded[Run]:
        """Create the next attempt of what has ended, or find the one that the key stands for."""
        passed = secrets or {}
        new = await self._accept_again(principal, parent, passed)
        if new.accepted.redactor.finds(key):
            raise invalid(holds_a_secret("idempotency_key"), "idempotency_key", PLAIN_VALUE)
        claim = None
        if key is not None:
            asked = {"run_id": parent.created.run_id}
            claim = await self._claims.asked(
                principal, "runs.retry", key, asked, secrets=_hidden(passed, new.accepted.args)
            )
        return await self._next(principal, parent, new, claim, key)

    async def retry_in_bulk(self, principal: Principal, parent: Run, bulk: str) -> Folded[Run]:
        """Create the next attempt of what has ended, once for each bulk.

        What has another attempt already, and not from this bulk, is ``Superseded``.
        """
        new = await self._accept_again(principal, parent, {})
        run_id = parent.created.run_id
        claim = await self._claims.asked(
            principal, "runs.retry_many", f"{bulk}/{run_id}", {"run_id": run_id}
        )
        return await self._next(principal, parent, new, claim, only_newest=True)

    async def _next(
        self,
        principal: Principal,
        parent: Run,
        new: NewRun,
        claim: Claim | None,
        key: str | None = None,
        *,
        only_newest: bool = False,
    ) -> Folded[Run]:
        claims = [] if claim is None else [claim]

        async def decide(newest: Sequence[Record | None]) -> RunCreated | Folded[Run]:
            *claimed, taken = newest
            for asked, made in zip(claims, claimed, strict=True):
                holder = await self._holder(asked, made)
                if holder is not None:
                    return holder
            last = parent.created.attempt
            if taken is not None:
                last = LINEAGE_EVENTS.decode(taken).attempt
            if only_newest and last != parent.created.attempt:
                raise Superseded(parent.created.run_id)
            return self._next_attempt(principal, parent, new, last + 1, key)

        def events_for(created: RunCreated) -> list[NewEvent]:
            taken = AttemptTaken(run_id=created.run_id, attempt=created.attempt, at=created.at)
            return [
                *(
                    self._event(CLAIM_EVENTS, self._claim_of(asked, created), principal)
                    for asked in claims
                ),
                self._event(LINEAGE_EVENTS, taken, principal),
            ]

        streams = [*(asked.stream for asked in claims), lineage_stream(parent.created.root_run_id)]
        begin = partial(self._create_with, new, streams, decide, events_for)
        return await self._creator.sealed(new, begin)

    async def _accept_again(
        self, principal: Principal, parent: Run, secrets: dict[str, Any]
    ) -> NewRun:
        """Take the arguments of a run that has ended, with secrets that are passed again."""
        if not parent.status.is_terminal:
            raise OperationError(
                "RUN_NOT_TERMINAL", f"the run is {parent.status}; cancel it first, or wait"
            )
        before = parent.created
        names = self._entries.secrets(before.plugin_id, before.entry_id)
        unknown = sorted(secrets.keys() - names)
        if unknown:
            name = f"{before.plugin_id}.{before.entry_id}"
            told = f"secrets: {unknown[0]!r} is no secret argument of {name}"
            known = f"one of the names {', '.join(sorted(names)) or 'none'}"
            raise invalid(told, f"secrets.{unknown[0]}", known)
        args = {**before.args, **secrets}
        gone = [name for name in names & args.keys() if is_sealed(args[name])]
        if gone:
            raise secret_required(gone, "was forgotten when the run ended: pass it in secrets")
        return await self._creator.accept_again(self._new_id(), before, secrets, principal.tenant)

    def _next_attempt(
        self, principal: Principal, parent: Run, new: NewRun, attempt: int, key: str | None
    ) -> RunCreated:
        before = parent.created
        return replace(
            self._creator.created(new, principal.tenant, principal.user),
            root_run_id=before.root_run_id,
            parent_run_id=before.run_id,
            attempt=attempt,
            task_id=before.task_id,
            trace_id=before.trace_id,
            session_id=before.session_id,
            idempotency_key=key,
            timeout=before.timeout,  # as long as before, whatever is allowed by now
        )


def _check_names(request: CreateRun, accepted: Accepted) -> None:
    """Refuse a secret in what a run is known by: that is logged as it is."""
    redactor = accepted.redactor
    for name in ("task_id", "trace_id", "idempotency_key"):
        if redactor.finds(getattr(request, name)):
            raise invalid(holds_a_secret(name), name, PLAIN_VALUE)


def _hidden(values: dict[str, Any], kept: dict[str, Any]) -> Hidden:
    """Give arguments as they were passed, and name those that are not kept as they are."""
    names = [
        name
        for name, value in values.items()
        if not is_sealed(value) and (name not in kept or is_sealed(kept[name]))
    ]
    return Hidden(values, names)
