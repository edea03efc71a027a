from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.decider import Decider
from perdure.actors.errors import Crashed, NoSuchActor, Refusal
from perdure.actors.mailbox import Actor
from perdure.eventlog import (
    Append,
    DiskFull,
    EventLog,
    EventRegistry,
    LogClosed,
    MemoryStore,
    Record,
    StreamWrite,
    UnknownEvent,
    WrongExpectedVersion,
    open_log,
)
from perdure.eventlog.store import Bounds
from perdure.eventlog.testing import example_event
from tests.eventlog.conftest import SteadyEnv

# A counter: the smallest actor.

COUNTS = EventRegistry()


@COUNTS.register
@dataclass(frozen=True, kw_only=True)
class Counted:
    """The counter went on."""

    event_name: ClassVar[str] = "test.counted"
    by: int
    at: int = 1


@dataclass(frozen=True)
class Count:
    """Go on."""

    by: int = 1


class TooMuch(Refusal):
    """The counter refuses to go beyond a hundred."""


def decide(total: int, command: Count) -> tuple[Counted, ...]:
    """Count, up to a hundred; a negative step is a bug."""
    if command.by < 0:
        raise ZeroDivisionError("a bug")
    if total + command.by > 100:
        raise TooMuch(f"{total} + {command.by}")
    return (Counted(by=command.by),) if command.by else ()


def evolve(total: int | None, event: Counted) -> int:
    """Add up."""
    return (total or 0) + event.by


COUNTER: Decider[int, Count, Counted] = Decider(
    state=int,
    initial=0,
    decide=decide,
    evolve=evolve,
    describe=lambda _before, after: {"total": after},
    is_over=lambda total: total == 100,
    events=COUNTS,
    fold="counter-1",
)


@dataclass
class World:
    """A log and one actor on it."""

    log: EventLog
    store: MemoryStore
    env: SteadyEnv
    nursery: trio.Nursery
    actor: Actor[int, Count, Counted] = field(init=False)

    def start(self) -> None:
        """Bring the actor to life, or its successor."""
        self.actor = self.make("counter/1")

    def make(self, stream: str, **hooks: Any) -> Actor[int, Count, Counted]:
        """Make an actor of a stream."""
        return Actor(
            COUNTER,
            stream,
            log=self.log,
            new_id=lambda: self.env.new_id().bytes,
            start=self.nursery.start_soon,
            **hooks,
        )

    @property
    def stored(self) -> list[Record]:
        """The actor's stream on disk."""
        return self.store.read_stream("counter/1", 0, Bounds()).records


@asynccontextmanager
async def world(store: MemoryStore | None = None) -> AsyncIterator[World]:
    """Make a world with a counter that has counted one."""
    env = SteadyEnv()
    store = store or MemoryStore()
    async with open_log(env, store) as log, trio.open_nursery() as nursery:
        first = COUNTS.encode(Counted(by=1), event_id=env.new_id().bytes, event_time=1)
        await log.append(Append([StreamWrite("counter/1", 0, [first], "session/1")]))
        world = World(log, store, env, nursery)
        world.start()
        yield world
        nursery.cancel_scope.cancel()


async def gather(*asks: Callable[[], Any]) -> list[Any]:
    """Ask several things at once, in this order; give answers and errors."""
    answers: list[Any] = [None] * len(asks)

    async def one(number: int) -> None:
        try:
            answers[number] = (await asks[number]()).state
        except Exception as error:  # noqa: BLE001 - the error is the answer
            answers[number] = error

    async with trio.open_nursery() as nursery:
        for number in range(len(asks)):
            nursery.start_soon(one, number)
            await trio.testing.wait_all_tasks_blocked()
    return answers


async def test_an_answer_is_on_disk(autojump_clock: MockClock) -> None:
    """The state that an asker hears is the fold of what the log holds."""
    async with world() as w:
        folded = await w.actor.ask(Count(2), principal="a/b")
        assert folded.state == 3
        assert (folded.version, folded.mark, folded.scope) == (2, w.stored[-1].mark, "session/1")
        assert w.stored[-1].metadata.principal == "a/b"
        assert w.stored[-1].metadata.fields == {"total": 3}


async def test_all_that_wait_are_decided_in_order_and_appended_once(
    autojump_clock: MockClock,
) -> None:
    """Each ask sees the state after those before it; the disk is asked once."""
    async with world() as w:
        await w.actor.ask(Count(0))
        before = w.log.writer.commits
        asks = [lambda n=n: w.actor.ask(Count(n)) for n in (1, 50, 60, 10)]
        answers = await gather(*asks)
        assert answers[0] == 2
        assert isinstance(answers[2], TooMuch)
        assert answers[3] == 62
        assert w.log.writer.commits - before == 2
        assert w.actor.folded is not None
        assert w.actor.folded.state == COUNTER.replay([COUNTS.decode(r) for r in w.stored])


async def test_a_refusal_hurts_only_its_asker(autojump_clock: MockClock) -> None:
    """A refused command leaves no trace."""
    async with world() as w:
        with pytest.raises(TooMuch):
            await w.actor.ask(Count(100))
        assert len(w.stored) == 1


async def test_nothing_to_say_writes_nothing(autojump_clock: MockClock) -> None:
    """A command without events is answered with the state as it is."""
    async with world() as w:
        assert (await w.actor.ask(Count(0))).state == 1
        assert len(w.stored) == 1


async def test_the_end_seals_the_stream(autojump_clock: MockClock) -> None:
    """When it is over, it is over in the store."""
    async with world() as w:
        await w.actor.ask(Count(99))
        assert w.stored[-1].seal == 1
        with pytest.raises(TooMuch):
            await w.actor.ask(Count(1))


async def test_a_bug_hurts_only_its_command(autojump_clock: MockClock) -> None:
    """The asker learns of the crash, and so does who supervises; the others are answered."""
    async with world() as w:
        crashes: list[str] = []
        actor = w.make("counter/1", on_crash=lambda *crash: crashes.append(repr(crash)))
        await actor.ask(Count(0))
        answers = await gather(
            lambda: actor.ask(Count(1)),
            lambda: actor.ask(Count(-1)),
            lambda: actor.ask(Count(1)),
        )
        assert answers[0] == 2
        assert isinstance(answers[1], Crashed)
        assert "Count broke counter/1" in str(answers[1])
        assert answers[2] == 3
        assert crashes == ["('counter/1', ZeroDivisionError('a bug'))"]


async def test_a_stream_that_cannot_be_folded_crashes_its_actor_each_time(
    autojump_clock: MockClock,
) -> None:
    """Whoever asks learns it; the log is not touched."""
    async with world() as w:
        odd = example_event()
        await w.log.append(Append([StreamWrite("counter/1", 1, [odd], "session/1")]))
        w.start()
        for _ in range(2):
            with pytest.raises(UnknownEvent, match=r"example\.happened"):
                await w.actor.ask(Count(1))
        assert len(w.stored) == 2
        assert w.actor.is_idle


async def test_who_hears_of_changes_and_fails_begins_again(autojump_clock: MockClock) -> None:
    """What was written is answered as written, and folded again for the next ask."""
    async with world() as w:

        def fail(_: object) -> None:
            raise ZeroDivisionError("deaf")

        actor = w.make("counter/1", on_change=fail)
        assert (await actor.ask(Count(1))).state == 2
        assert actor.folded is None
        assert (await actor.look()).state == 2


async def test_an_idle_actor_can_be_dropped_and_nothing_is_lost(autojump_clock: MockClock) -> None:
    """It has been idle when nobody has asked since it was last looked at."""
    async with world() as w:
        assert (await w.actor.ask(Count(5))).state == 6
        assert not w.actor.has_been_idle()
        assert w.actor.has_been_idle()
        await w.actor.look()
        assert not w.actor.has_been_idle()
        assert w.actor.is_idle
        w.start()
        assert (await w.actor.ask(Count(0))).state == 6


async def test_an_actor_that_is_asked_is_not_idle(autojump_clock: MockClock) -> None:
    """Neither while its asker works for it nor while others wait in line."""
    async with world() as w:
        await w.actor.ask(Count(0))
        w.actor.has_been_idle()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(lambda: w.actor.ask(Count(1)))
            await trio.testing.wait_all_tasks_blocked()
            assert not w.actor.is_idle
            assert not w.actor.has_been_idle()
            assert not w.actor.has_been_idle()
        assert (await w.actor.look()).state == 4
        assert w.actor.is_idle


async def test_when_tasks_are_no_more_run_nobody_is_left_waiting(
    autojump_clock: MockClock,
) -> None:
    """Those in line hear that it is over; who is at work finishes it."""
    async with world() as w:
        down: list[bool] = []

        def start(work: Callable[[], Any]) -> None:
            if down:
                raise LogClosed("going down")
            w.nursery.start_soon(work)

        actor = Actor(COUNTER, "counter/1", log=w.log, new_id=lambda: bytes(16), start=start)
        await actor.look()
        down.append(True)
        answers = await gather(lambda: actor.ask(Count(1)), actor.look, actor.look)
        assert answers[0] == 2
        assert [type(answer) for answer in answers[1:]] == [LogClosed, LogClosed]
        assert actor.is_idle


async def test_a_worker_that_is_cancelled_leaves_nobody_waiting(autojump_clock: MockClock) -> None:
    """What it had taken and what waits in line is answered: the process is going down."""
    async with world() as w:
        answers: list[Any] = []

        async def ask() -> None:
            try:
                answers.append((await w.actor.ask(Count(1))).state)
            except LogClosed as closed:
                answers.append(closed)

        with trio.CancelScope(shield=True):  # those who ask live on
            async with trio.open_nursery() as askers:
                for _ in range(4):
                    askers.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                await trio.sleep(7)  # the first has been answered, the others are being written
                w.nursery.cancel_scope.cancel()
        assert len(answers) == 4
        assert answers[0] == 2


async def test_an_actor_without_a_stream_says_so(autojump_clock: MockClock) -> None:
    """Nobody can ask for what was never created."""
    async with world() as w:
        with pytest.raises(NoSuchActor):
            await w.make("counter/9").ask(Count(1))


async def test_an_ask_that_is_cancelled_before_its_turn_is_not_done(
    autojump_clock: MockClock,
) -> None:
    """Taken back in time, it leaves no trace; afterwards it is done all the same."""
    async with world() as w:
        await w.actor.ask(Count(0))
        with trio.move_on_after(0.5):
            await w.actor.ask(Count(1))  # its append is on its way
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: w.actor.ask(Count(2)))
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(0.1):
                await w.actor.ask(Count(40))
        assert (await w.actor.ask(Count(0))).state == 4


async def test_somebody_elses_write_is_folded_and_decided_again(
    autojump_clock: MockClock,
) -> None:
    """After a conflict the actor knows what the log knows."""
    async with world() as w:
        await w.actor.ask(Count(0))
        foreign = COUNTS.encode(Counted(by=30), event_id=bytes(16), event_time=1)
        await w.log.append(Append([StreamWrite("counter/1", 1, [foreign], "session/1")]))
        assert (await w.actor.ask(Count(1))).state == 32
        with pytest.raises(TooMuch):
            await w.actor.ask(Count(70))


async def test_writes_that_go_along_are_atomic(autojump_clock: MockClock) -> None:
    """What an ask creates elsewhere appears with its events, or neither does."""
    async with world() as w:
        also = StreamWrite("claim/1", 0, [example_event()])
        assert (await w.actor.ask(Count(1), also=[also])).state == 2
        assert w.store.stream_state("claim/1").version == 1
        other = StreamWrite("claim/1", 0, [example_event()])
        with pytest.raises(WrongExpectedVersion):
            await w.actor.ask(Count(1), also=[other])
        assert (await w.actor.ask(Count(0))).state == 2


class Moody(MemoryStore):
    """A store that can fail."""

    error: Exception | None = None

    def commit(self, records: Sequence[Record]) -> None:
        """Fail if told so."""
        if self.error is not None:
            raise self.error
        super().commit(records)


async def test_a_full_disk_is_no_crash(autojump_clock: MockClock) -> None:
    """New work is refused, the actor stays, and later it works."""
    store = Moody()
    async with world(store) as w:
        await w.actor.ask(Count(0))
        store.error = DiskFull("full")
        with pytest.raises(DiskFull):
            await w.actor.ask(Count(1), new_work=True)
        store.error = None
        assert (await w.actor.ask(Count(1), new_work=True)).state == 2
