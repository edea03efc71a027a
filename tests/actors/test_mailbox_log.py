"""What an actor asks of the log, and what it does when the log says no."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors import mailbox
from perdure.actors.errors import Crashed, NoSuchActor
from perdure.actors.folded import Folded
from perdure.actors.mailbox import TRIES, Actor
from perdure.eventlog import (
    Append,
    EventLog,
    LogClosed,
    OutcomeUnknown,
    StreamWrite,
    WrongExpectedVersion,
)
from perdure.eventlog.append import Receipt
from perdure.eventlog.errors import CodecError, ScopeMoved, UnknownEvent
from perdure.eventlog.reading import Page
from perdure.eventlog.record import Mark
from perdure.eventlog.testing import example_event
from tests.actors.test_mailbox import COUNTER, COUNTS, Count, Counted, TooMuch, World, world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass
class Watched:
    """A log that notes what is asked of it, and fails when told so."""

    log: EventLog
    troubles: list[Exception | Callable[[], Awaitable[None]] | None] = field(default_factory=list)
    appends: list[tuple[Append, bool]] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)  # after which version

    async def append(self, append: Append, *, new_work: bool = False) -> Receipt:
        """Note it; fail, or let something happen first, if it is time to."""
        self.appends.append((append, new_work))
        trouble = self.troubles.pop(0) if self.troubles else None
        if isinstance(trouble, Exception):
            raise trouble
        if trouble is not None:
            await trouble()
        return await self.log.append(append, new_work=new_work)

    async def read_stream(self, stream: str, *, after: int = 0, at: Mark | None = None) -> Page:
        """Note from where."""
        self.reads.append(after)
        return await self.log.read_stream(stream, after=after, at=at)

    async def read_from_snapshot(
        self, stream: str, fold: str, *, at: Mark | None = None
    ) -> tuple[bytes | None, Page]:
        """Note that all of it was read."""
        self.reads.append(0)
        return await self.log.read_from_snapshot(stream, fold, at=at)

    async def save_snapshot(
        self, stream: str, version: int, event_id: bytes, *, fold: str, state: bytes
    ) -> None:
        """Save it."""
        await self.log.save_snapshot(stream, version, event_id, fold=fold, state=state)


@dataclass
class Scene:
    """A counter that has counted one, on a log that is watched."""

    world: World
    log: Watched
    actor: Actor[int, Count, Counted]
    heard: list[object]  # by whoever hears of changes

    def make(self, decider: Any = COUNTER, **hooks: Any) -> Actor[int, Count, Counted]:
        """Make another actor of the same stream."""
        return Actor(
            decider,
            "counter/1",
            log=self.log,
            new_id=lambda: self.world.env.new_id().bytes,
            start=self.world.nursery.start_soon,
            **hooks,
        )

    async def foreign(self, by: int, version: int = 1) -> None:
        """Write to the actor's stream behind its back."""
        event = COUNTS.encode(Counted(by=by), event_id=self.world.env.new_id().bytes, event_time=1)
        write = StreamWrite("counter/1", version, [event], "session/1")
        await self.world.log.append(Append([write]))


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    """Make a scene; the actor has folded its stream."""
    async with world() as w:
        made = Scene(w, Watched(w.log), w.actor, [])
        made.actor = made.make(on_change=made.heard.append)
        await made.actor.look()
        made.log.reads.clear()
        yield made


MINE = WrongExpectedVersion("counter/1", 1, 2)
OTHER = WrongExpectedVersion("claim/1", 0, 1)
MOVED = ScopeMoved("session/1", 1, 2)


async def test_whoever_changes_is_heard_before_the_answer(autojump_clock: MockClock) -> None:
    """Each append is heard of once, with the state it led to; what writes nothing is not."""
    async with scene() as s:
        folded = await s.actor.ask(Count(2))
        assert s.heard == [folded]
        last = s.world.stored[-1]
        assert folded == Folded(3, 2, last.mark, last.commit_time, "session/1")
        await s.actor.look()
        await s.actor.ask(Count(0))
        assert s.heard == [folded]


async def test_what_is_known_is_not_read(autojump_clock: MockClock) -> None:
    """Nothing is folded when the state comes with the actor, and nothing twice."""
    async with scene() as s:
        folded = await s.actor.look()
        assert (await s.make(folded=folded).ask(Count(1))).state == 2
        assert s.log.reads == []


async def test_an_actor_is_idle_from_the_start(autojump_clock: MockClock) -> None:
    """It has been idle when it is seen so twice; an ask begins the count anew."""
    async with scene() as s:
        actor = s.make()
        assert actor.is_idle
        assert [actor.has_been_idle() for _ in range(3)] == [False, True, True]
        await actor.look()
        assert [actor.has_been_idle() for _ in range(2)] == [False, True]


async def test_a_conflict_is_tried_again_a_few_times(autojump_clock: MockClock) -> None:
    """Then whoever asked hears of it, and the actor is as good as before."""
    async with scene() as s:
        s.log.troubles = [MINE] * (TRIES - 1)
        assert (await s.actor.ask(Count(1))).state == 2
        assert len(s.log.appends) == TRIES
        s.log.troubles = [MINE] * TRIES
        s.log.appends.clear()
        with pytest.raises(WrongExpectedVersion):
            await s.actor.ask(Count(1))
        assert len(s.log.appends) == TRIES
        assert (await s.actor.ask(Count(1))).state == 3


async def test_after_a_conflict_only_what_is_new_is_read(autojump_clock: MockClock) -> None:
    """The rest is known already."""
    async with scene() as s:
        await s.foreign(30)
        assert (await s.actor.ask(Count(1))).state == 32
        assert s.log.reads == [1]


async def test_a_conflict_of_its_own_stream_is_not_the_callers(autojump_clock: MockClock) -> None:
    """An ask with further writes is decided again, and both are written."""
    async with scene() as s:
        await s.foreign(30)
        also = StreamWrite("claim/1", 0, [example_event()])
        assert (await s.actor.ask(Count(1), also=[also])).state == 32
        streams = [{write.stream for write in append.writes} for append, _ in s.log.appends]
        assert streams == [{"counter/1", "claim/1"}] * 2


@pytest.mark.parametrize("conflict", [OTHER, MOVED], ids=["stream", "scope"])
async def test_a_conflict_elsewhere_is_the_callers(
    autojump_clock: MockClock, conflict: Exception
) -> None:
    """Who wrote elsewhere hears of it at once. Who did not is tried again."""
    async with scene() as s:
        also = StreamWrite("claim/1", 0, [example_event()])
        s.log.troubles = [conflict]
        with pytest.raises(type(conflict)):
            await s.actor.ask(Count(1), also=[also])
        assert len(s.log.appends) == 1
        s.log.troubles = [conflict]
        assert (await s.actor.ask(Count(1))).state == 2


async def test_writes_elsewhere_need_no_events(autojump_clock: MockClock) -> None:
    """They are written for a command that changes nothing here, too."""
    async with scene() as s:
        also = StreamWrite("claim/1", 0, [example_event()])
        before = await s.actor.look()
        assert await s.actor.ask(Count(0), also=[also]) == before
        assert s.world.store.stream_state("claim/1").version == 1


async def test_a_closed_log_is_no_crash(autojump_clock: MockClock) -> None:
    """Whoever asks hears the log's own words, and what is known stays known."""
    async with scene() as s:
        crashes: list[object] = []
        actor = s.make(on_crash=lambda *crash: crashes.append(crash))
        await actor.look()
        s.log.troubles = [LogClosed("closed")]
        with pytest.raises(LogClosed, match=r"^closed$"):
            await actor.ask(Count(1))
        assert crashes == []
        assert actor.folded is not None


async def test_a_crash_is_told_to_who_asks_and_to_who_supervises(
    autojump_clock: MockClock,
) -> None:
    """Both learn which actor, on what, and the error."""
    async with scene() as s:
        crashes: list[str] = []
        actor = s.make(on_crash=lambda stream, error: crashes.append(f"{stream} {error!r}"))
        with pytest.raises(Crashed, match=r"^Count broke counter/1: ZeroDivisionError\('a bug'\)$"):
            await actor.ask(Count(-1))
        s.log.troubles = [CodecError("unreadable"), ValueError("odd")]
        for words in (r"CodecError\('unreadable'\)", r"ValueError\('odd'\)"):
            with pytest.raises(Crashed, match=rf"^counter/1 broke: {words}$"):
                await actor.ask(Count(1))
            assert actor.folded is None
        assert crashes == [
            "counter/1 ZeroDivisionError('a bug')",
            "counter/1 CodecError('unreadable')",
            "counter/1 ValueError('odd')",
        ]


async def test_what_is_stored_and_cannot_be_read_is_told_as_that(
    autojump_clock: MockClock,
) -> None:
    """Whoever asks hears what every reader of the stream hears; whoever supervises, of a crash."""
    async with scene() as s:
        crashes: list[object] = []
        actor = s.make(on_crash=lambda _stream, error: crashes.append(error))
        await actor.look()
        trouble = UnknownEvent("counter.exploded", 2)
        s.log.troubles = [trouble]
        with pytest.raises(UnknownEvent):
            await actor.ask(Count(1))
        assert crashes == [trouble]
        assert actor.folded is None
        assert (await actor.ask(Count(1))).state == 2


async def test_values_that_cannot_be_stored_are_the_callers_fault(
    autojump_clock: MockClock,
) -> None:
    """Nothing crashes."""
    async with scene() as s:
        crashes: list[object] = []
        odd = replace(COUNTER, decide=lambda _state, _command: (Counted(by=1 << 70),))
        actor = s.make(odd, on_crash=lambda *crash: crashes.append(crash))
        with pytest.raises(CodecError):
            await actor.ask(Count(1))
        assert (crashes, s.log.appends) == ([], [])


async def test_who_is_not_there_is_named(autojump_clock: MockClock) -> None:
    """By its stream."""
    async with scene() as s:
        with pytest.raises(NoSuchActor, match=r"^counter/9$"):
            await s.world.make("counter/9").look()


async def test_each_event_is_described_by_what_it_changed(autojump_clock: MockClock) -> None:
    """From the state before it to the one after it, under the name of who asked."""
    twice = replace(
        COUNTER,
        decide=lambda _state, command: (Counted(by=command.by, at=7), Counted(by=1, at=8)),
        describe=lambda before, after: {"from": before, "to": after},
    )
    async with scene() as s:
        actor = s.make(twice)
        await actor.ask(Count(2), principal="a/b")
        await actor.ask(Count(2), principal="c/d")
        stored = s.world.stored[1:]
        assert [dict(r.metadata.fields) for r in stored] == [
            {"from": 1, "to": 3},
            {"from": 3, "to": 4},
            {"from": 4, "to": 6},
            {"from": 6, "to": 7},
        ]
        assert [r.metadata.principal for r in stored] == ["a/b", "a/b", "c/d", "c/d"]
        assert [r.event_time for r in stored] == [7, 8, 7, 8]


async def test_after_a_snapshot_everything_is_still_known(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read again, and the next one is made when it is due."""
    monkeypatch.setattr(mailbox, "SNAPSHOT_EVERY", 2)
    async with scene() as s:
        folded = await s.actor.ask(Count(1))
        await trio.sleep(10)
        assert s.actor.folded == replace(folded, snapshot=2)
        assert s.log.reads == []


async def test_after_a_write_with_an_unknown_outcome_nothing_is_known(
    autojump_clock: MockClock,
) -> None:
    """The next ask folds the stream again: what was written counts, and a guess never does."""
    async with scene() as s:

        async def write_and_fail() -> None:
            await s.foreign(95)
            raise OutcomeUnknown("the disk is gone")

        s.log.troubles = [write_and_fail]
        with pytest.raises(OutcomeUnknown):
            await s.actor.ask(Count(95))
        assert s.actor.folded is None
        with pytest.raises(TooMuch):
            await s.actor.ask(Count(9))
        assert s.log.reads == [0]
