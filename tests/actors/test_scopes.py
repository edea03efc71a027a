"""Actors that fold their scope: what they know of their neighbours, and when they decide again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec
import pytest
import trio
from trio.testing import MockClock

from perdure.actors.decider import Decider, Origin
from perdure.actors.errors import NoSuchActor, Refusal
from perdure.actors.kind import Kind
from perdure.actors.scope_actor import ScopeActor
from perdure.actors.scope_folding import fold_records, fold_scope, fold_scope_rest
from perdure.eventlog import (
    Append,
    EventLog,
    EventRegistry,
    MemorySnapshots,
    MemoryStore,
    Record,
    StreamWrite,
    open_log,
)
from perdure.eventlog.append import Receipt
from tests.actors.test_mailbox import COUNTS, Counted
from tests.eventlog.conftest import SteadyEnv

STREAM = "session/1"
NOTES = EventRegistry()


@NOTES.register
@dataclass(frozen=True, kw_only=True)
class Noted:
    """A session has noted what its neighbours had counted."""

    event_name: ClassVar[str] = "test.noted"
    total: int
    text: str = ""
    at: int = 1


@dataclass(frozen=True)
class Note:
    """Note the total, unless it is odd."""

    text: str = ""


class Odd(Refusal):
    """The total is odd."""


class Session(msgspec.Struct, frozen=True):
    """What a session knows: the sum of its neighbours, its notes, and where each event was."""

    total: int = 0
    notes: int = 0
    seen: tuple[tuple[str, int, int], ...] = ()


def decide(session: Session, command: Note) -> tuple[Noted, ...]:
    """Note the total; an odd one is refused, and without a total there is nothing to note."""
    if session.total % 2:
        raise Odd(str(session.total))
    return (Noted(total=session.total, text=command.text),) if session.total else ()


def evolve(session: Session | None, event: Noted | Counted, origin: Origin) -> Session:
    """Add up neighbours, count notes."""
    known = session or Session()
    seen = (*known.seen[-3:], (origin.stream, origin.position, origin.commit_time))
    if isinstance(event, Counted):
        return Session(known.total + event.by, known.notes, seen)
    return Session(known.total, known.notes + 1, seen)


SESSION: Decider[Session, Note, Noted] = Decider(
    state=Session,
    initial=None,
    decide=decide,
    evolve=evolve,
    describe=lambda _before, after: {"notes": after.notes},
    is_over=lambda _: False,
    events=NOTES,
    fold="session-1",
    neighbours={Counted.event_name: COUNTS},
)


class Watched:
    """A log that notes what is asked of it, and in which something may happen before an append."""

    def __init__(self, log: EventLog) -> None:
        """Pass everything on."""
        self._log = log
        self.appends: list[Append] = []
        self.before: list[Any] = []
        self.snapshots: list[tuple[int, bytes]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, append: Append, *, new_work: bool = False) -> Receipt:
        """Note it; let something happen first, if it is time to."""
        self.appends.append(append)
        if self.before:
            trouble = self.before.pop(0)
            if isinstance(trouble, Exception):
                raise trouble
            await trouble()
        return await self._log.append(append, new_work=new_work)

    async def save_scope_snapshot(
        self, scope: str, position: int, event_id: bytes, *, fold: str, state: bytes
    ) -> None:
        """Note it."""
        self.snapshots.append((position, state))
        await self._log.save_scope_snapshot(scope, position, event_id, fold=fold, state=state)


class World:
    """A log, a session, and neighbours."""

    def __init__(self, log: EventLog, env: SteadyEnv, nursery: trio.Nursery) -> None:
        """Make the session's actor."""
        self.log = Watched(log)
        self.env = env
        self.nursery = nursery
        self.versions: dict[str, int] = {}
        self.actor = self.make(STREAM)

    def make(self, stream: str) -> ScopeActor[Session, Note, Noted]:
        """Make an actor that folds its scope."""
        return ScopeActor(
            SESSION,
            stream,
            log=self.log,
            new_id=lambda: self.env.new_id().bytes,
            start=self.nursery.start_soon,
        )

    async def write(self, stream: str, event: Any, registry: EventRegistry, scope: str) -> Record:
        """Write an event as somebody else does."""
        new = registry.encode(event, event_id=self.env.new_id().bytes, event_time=1)
        version = self.versions.get(stream, 0)
        receipt = await self.log._log.append(Append([StreamWrite(stream, version, [new], scope)]))
        self.versions[stream] = version + 1
        return receipt.records[0]

    async def neighbour(self, by: int, stream: str = "run/1", scope: str = STREAM) -> Record:
        """Let a neighbour count."""
        return await self.write(stream, Counted(by=by), COUNTS, scope)


@asynccontextmanager
async def world(store: MemoryStore | None = None, snapshots: Any = None) -> AsyncIterator[World]:
    """Make a world with a session that has noted nothing yet but its own beginning."""
    env, store = SteadyEnv(), store or MemoryStore()
    async with (
        open_log(env, store, snapshots=snapshots or MemorySnapshots()) as log,
        trio.open_nursery() as nursery,
    ):
        w = World(log, env, nursery)
        if not store.head().position:
            await w.write(STREAM, Noted(total=0), NOTES, STREAM)
        yield w
        nursery.cancel_scope.cancel()


async def test_it_decides_on_all_that_its_neighbours_wrote(autojump_clock: MockClock) -> None:
    """What lies in its scope is in the decision; other scopes and other events are not."""
    async with world() as w:
        await w.neighbour(2)
        assert (await w.actor.ask(Note())).state.total == 2
        await w.neighbour(4, "run/2")
        await w.neighbour(100, "run/3", scope="session/2")
        await w.write("run/4", Noted(total=9), NOTES, STREAM)  # an event that it folds of nobody
        folded = await w.actor.ask(Note())
        assert (folded.state.total, folded.state.notes) == (6, 3)
        stored = [NOTES.decode(r).total for r in (await w.log.read_stream(STREAM)).records]
        assert stored == [0, 2, 6]


async def test_looking_is_looking_at_the_head(autojump_clock: MockClock) -> None:
    """An idle actor knows what was written since it last looked."""
    async with world() as w:
        assert (await w.actor.look()).state.total == 0
        record = await w.neighbour(3)
        folded = await w.actor.look()
        assert (folded.state.total, folded.mark) == (3, record.mark)
        assert folded.commit_time == record.commit_time
        assert (folded.version, folded.scope) == (1, STREAM)


async def test_a_refusal_is_decided_at_the_head_too(autojump_clock: MockClock) -> None:
    """A command that writes nothing is not decided on what is out of date."""
    async with world() as w:
        await w.neighbour(2)
        await w.actor.look()
        await w.neighbour(1)
        with pytest.raises(Odd, match="3"):
            await w.actor.ask(Note())
        assert w.log.appends == []


async def test_evolve_sees_where_events_come_from(autojump_clock: MockClock) -> None:
    """Stream, position and commit time are those of the log, of its own events as well."""
    async with world() as w:
        first = (await w.log.read_scope(STREAM)).records[0]
        second = await w.neighbour(2)
        folded = await w.actor.ask(Note())
        third = (await w.log.read_scope(STREAM)).records[-1]
        records = (first, second, third)
        assert folded.state.seen == tuple((r.stream, r.position, r.commit_time) for r in records)
        assert folded.mark == third.mark


async def test_what_is_decided_has_no_position_yet(autojump_clock: MockClock) -> None:
    """While it is being decided, an event comes from the actor's own stream, at no place."""
    seen: list[Origin] = []

    def watching(session: Session | None, event: Any, origin: Origin) -> Session:
        seen.append(origin)
        return evolve(session, event, origin)

    async with world() as w:
        await w.neighbour(2)
        actor = w.make(STREAM)
        actor._decider = replace(SESSION, evolve=watching)
        await actor.ask(Note())
        assert Origin(STREAM, 0, 0) in seen


async def test_streams_that_its_append_creates_are_in_its_state(autojump_clock: MockClock) -> None:
    """Written along and in its scope, they are folded with its own event, in their order."""
    async with world() as w:
        await w.neighbour(2)
        event = COUNTS.encode(Counted(by=4), event_id=w.env.new_id().bytes, event_time=1)
        folded = await w.actor.ask(Note(), also=[StreamWrite("run/9", 0, [event], STREAM)])
        assert (folded.state.total, folded.state.notes) == (6, 2)
        stored = await fold_scope(w.log, SESSION, STREAM)
        assert stored is not None
        assert (stored.state, stored.mark, stored.version) == (
            folded.state,
            folded.mark,
            folded.version,
        )


async def test_a_scope_without_its_stream_is_no_actor(autojump_clock: MockClock) -> None:
    """Neighbours alone make no session, and neither does nothing."""
    async with world() as w:
        await w.neighbour(2, "run/1", scope="session/9")
        for stream in ("session/9", "session/8"):
            with pytest.raises(NoSuchActor):
                await w.make(stream).ask(Note())
            assert await fold_scope(w.log, SESSION, stream) is None


async def test_the_past_of_a_scope_is_the_same_fold_stopped_earlier(
    autojump_clock: MockClock,
) -> None:
    """At every place in the log it is what was known then."""
    async with world() as w:
        totals = []
        for number in range(5):
            record = await w.neighbour(2, f"run/{number}")
            totals.append((record.mark, 2 * (number + 1)))
        for mark, total in totals:
            folded = await fold_scope(w.log, SESSION, STREAM, at=mark)
            assert folded is not None
            assert (folded.state.total, folded.mark) == (total, mark)
        known = await fold_scope(w.log, SESSION, STREAM, at=totals[1][0])
        after = totals[1][0].position
        later = await fold_scope_rest(w.log, SESSION, STREAM, known, after=after, at=totals[3][0])
        assert later is not None
        assert later.state.total == 8


async def test_pages_of_a_scope_are_folded_to_the_last(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long scope is read in pages, from its beginning and from what is known."""
    monkeypatch.setattr("perdure.eventlog.reading.PAGE_RECORDS", 3)
    monkeypatch.setattr("perdure.eventlog.log.PAGE_RECORDS", 3)
    async with world() as w:
        for number in range(10):
            await w.neighbour(1, f"run/{number}")
        folded = await fold_scope(w.log, SESSION, STREAM)
        assert folded is not None
        assert folded.state.total == 10
        for number in range(10):
            await w.neighbour(1, f"run/a{number}")
        after = folded.mark.position
        later = await fold_scope_rest(w.log, SESSION, STREAM, folded, after=after)
        assert later is not None
        assert later.state.total == 20


def test_nothing_folds_onto_nothing() -> None:
    """Without records what is known stays as it is, also if that is nothing."""
    assert fold_records(SESSION, STREAM, None, []) is None
    assert SESSION.folds_scope
    assert not replace(SESSION, neighbours=None).folds_scope


def test_a_kind_names_streams_and_ids() -> None:
    """And knows its own streams from others."""
    kind = Kind(
        name="session",
        decider=SESSION,
        view=lambda folded: {"total": folded.state.total},
        tenant=lambda _: "t",
        not_found="SESSION_NOT_FOUND",
    )
    assert kind.stream("1") == "session/1"
    assert (kind.id_of("session/1"), kind.id_of("sessions/1"), kind.id_of("run/1")) == (
        "1",
        None,
        None,
    )
    assert kind.id_field == "session_id"
