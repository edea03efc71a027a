"""The operations on counters."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import msgspec

from perdure.actors.claim import CLAIM_EVENTS, Subject
from perdure.actors.errors import NoSuchActor
from perdure.eventlog.append import Append, StreamWrite
from perdure.eventlog.log import EventLog
from perdure.eventlog.record import Metadata, Record, encoded_metadata
from perdure.runtime.kernel.actor_reader import ActorReader
from perdure.runtime.kernel.claims import Claims
from perdure.runtime.kernel.errors import ErrorKind, Translation, declare_errors
from perdure.runtime.kernel.listing import Askable
from perdure.runtime.kernel.live_actors import LiveActors
from perdure.runtime.kernel.operations import Dialect, operation
from perdure.runtime.kernel.ownerless import OwnerlessStreams
from perdure.runtime.kernel.principal import Permission, Principal
from perdure.runtime.kernel.requests import CursorOrInstant, Key, Name, Request, TolerantRequest
from tests.counters.listing import counters_of
from tests.counters.rules import (
    COUNTER,
    COUNTER_EVENTS,
    COUNTER_KIND,
    Close,
    Count,
    Counter,
    CounterOpened,
    LimitReached,
)

COUNTER_ERRORS = declare_errors(
    {
        "COUNTER_NOT_FOUND": ErrorKind(
            404,
            retriable=False,
            meaning="there is no such counter",
            remedy="list the counters",
            command="`perdure counters` lists what there is.",
        ),
        "LIMIT_REACHED": ErrorKind(
            409, retriable=False, meaning="the counter is at its end", remedy="open another"
        ),
        "BAD_COUNT": ErrorKind(
            422, retriable=False, meaning="that cannot be counted", remedy="count by 1 to 1000"
        ),
    },
    Translation(NoSuchActor, "COUNTER_NOT_FOUND", (), "there is no such counter", "counter/"),
    Translation(LimitReached, "LIMIT_REACHED", ("limit",)),
)
LOOSE = Dialect({"VALIDATION_ERROR": "BAD_COUNT"})
By = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class OpenCounter(Request):
    """Open a counter."""

    name: Name
    idempotency_key: Key | None = None


class CountOn(TolerantRequest):
    """Count on."""

    counter_id: Name
    by: By = 1


class ReadCounter(Request):
    """Read a counter, now or as it was."""

    counter_id: Name
    at: CursorOrInstant | None = None


class CloseCounter(Request):
    """Close a counter."""

    counter_id: Name


class ListCounters(Request):
    """List counters."""


class CounterView(TypedDict):
    """A counter."""

    counter_id: str
    count: int
    closed: bool
    runs: dict[str, str]


class CounterAnswer(TypedDict):
    """A counter, and the cursor at which this is true."""

    counter: CounterView
    cursor: str


class CounterPage(TypedDict):
    """The ids of all counters, by name."""

    counter_ids: list[str]
    cursor: str


class CounterReads:
    """What can be read of counters, without an event loop."""

    def __init__(self, log: Any, reader: ActorReader[Counter], listing: Askable) -> None:
        """Read one log and its listing."""
        self._log = log
        self._reader = reader
        self._listing = listing

    @operation("counters.get", Permission.READ, "COUNTER_NOT_FOUND", "INVALID_CURSOR")
    async def get(self, principal: Principal, request: ReadCounter) -> CounterAnswer:
        """Read a counter, now or as it was."""
        folded, mark = await self._reader.read(principal, request.counter_id, request.at)
        return {"counter": COUNTER_KIND.view(folded), "cursor": self._log.cursor(mark)}

    @operation("counters.list", Permission.READ)
    async def list(self, principal: Principal, request: ListCounters) -> CounterPage:
        """List all counters of a tenant."""
        found, mark = await self._listing.ask(counters_of(principal.tenant))
        return {"counter_ids": found, "cursor": self._log.cursor(mark)}


class Counters(CounterReads):
    """Everything that can be done with counters."""

    def __init__(
        self,
        log: EventLog,
        actors: LiveActors[Counter, Count | Close, Any],
        listing: Askable,
        *,
        limit: int,
    ) -> None:
        """Counters end at a limit."""
        super().__init__(log, ActorReader(COUNTER_KIND, log, actors), listing)
        self._actors = actors
        self._limit = limit
        self._claims = Claims(log.env)
        self._streams = OwnerlessStreams(log)

    @operation("counters.open", Permission.RUN, "IDEMPOTENCY_CONFLICT", "CONFLICT")
    async def open(self, principal: Principal, request: OpenCounter) -> CounterAnswer:
        """Open a counter, or find the one that the key stands for."""
        now, env = self._log.env.now(), self._log.env
        opened = CounterOpened(
            counter_id=f"{request.name}-{env.new_id().hex[-16:]}",
            tenant=principal.tenant,
            limit=self._limit,
            at=now,
        )
        stream = COUNTER_KIND.stream(opened.counter_id)
        first = COUNTER_EVENTS.encode(
            opened,
            event_id=env.new_id().bytes,
            event_time=now,
            metadata=encoded_metadata(
                str(principal),
                None,
                (
                    ("tenant", principal.tenant),
                    ("counter_id", opened.counter_id),
                    ("changed", True),
                ),
            ),
        )
        write = StreamWrite(stream, 0, [first], stream)
        if request.idempotency_key is None:
            await self._log.append(Append([write]), new_work=True)
            return await self._answer(opened.counter_id)
        claim = await self._claims.asked(
            principal, "counters.open", request.idempotency_key, {"name": request.name}
        )

        async def attempt(newest: Any) -> CounterAnswer:
            (record,) = newest
            held = await self._claims.holder(claim, record, self._has_ended)
            if held is not None:
                return await self._answer(held.object_id)
            made = self._claims.made(claim, Subject("counter", opened.counter_id), now, None)
            event = CLAIM_EVENTS.encode(
                made, event_id=env.new_id().bytes, event_time=now, metadata=Metadata()
            )
            version = record.version if isinstance(record, Record) else 0
            await self._log.append(Append([StreamWrite(claim.stream, version, [event]), write]))
            return await self._answer(opened.counter_id)

        return await self._streams.write([claim.stream], attempt)

    async def _has_ended(self, subject: Subject) -> bool:
        folded = await self._actors.look(COUNTER_KIND.stream(subject.object_id))
        return folded.state.closed

    async def _answer(self, counter_id: str) -> CounterAnswer:
        folded = await self._actors.look(COUNTER_KIND.stream(counter_id))
        return {"counter": COUNTER_KIND.view(folded), "cursor": self._log.cursor(folded.mark)}

    @operation(
        "counters.count",
        Permission.RUN,
        "COUNTER_NOT_FOUND",
        "LIMIT_REACHED",
        "CONFLICT",
        dialect=LOOSE,
    )
    async def count(self, principal: Principal, request: CountOn) -> CounterAnswer:
        """Count on; unknown fields are ignored, and what makes no sense is BAD_COUNT."""
        await self._reader.require(principal, request.counter_id)
        command = Count(by=request.by, at=self._log.env.now())
        folded = await self._actors.ask(COUNTER_KIND.stream(request.counter_id), command)
        return {"counter": COUNTER_KIND.view(folded), "cursor": self._log.cursor(folded.mark)}

    @operation("counters.close", Permission.CANCEL, "COUNTER_NOT_FOUND", "CONFLICT")
    async def close(self, principal: Principal, request: CloseCounter) -> CounterAnswer:
        """Count no more."""
        await self._reader.require(principal, request.counter_id)
        command = Close(at=self._log.env.now())
        folded = await self._actors.ask(COUNTER_KIND.stream(request.counter_id), command)
        return {"counter": COUNTER_KIND.view(folded), "cursor": self._log.cursor(folded.mark)}


assert COUNTER.folds_scope
