"""Those who find an actor busy wait in line, and a task sees to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.errors import Crashed
from perdure.actors.mailbox import BATCH, MAX_MAIL, Actor
from perdure.eventlog import LogClosed, Overloaded, StreamWrite
from perdure.eventlog.append import MAX_APPEND_EVENTS
from perdure.eventlog.errors import InvalidAppend
from perdure.eventlog.testing import example_event
from tests.actors.test_mailbox import COUNTER, COUNTS, Count, Counted, TooMuch, gather, world
from tests.actors.test_mailbox_log import scene


async def together(actor: Actor[int, Count, Counted], *asks: Callable[[], Any]) -> list[Any]:
    """Ask while the actor is busy, so that all wait in line; give their answers."""
    return (await gather(lambda: actor.ask(Count(1)), *asks))[1:]


async def test_a_refusal_comes_after_its_cause(autojump_clock: MockClock) -> None:
    """What it rests on is on disk, even if that was asked a moment before in the same batch."""
    async with world() as w:
        await w.actor.ask(Count(0))
        stored: list[int] = []

        async def ask_too_much() -> None:
            with pytest.raises(TooMuch):
                await w.actor.ask(Count(20))
            stored.append(len(w.stored))

        async with trio.open_nursery() as nursery:
            for ask in (lambda: w.actor.ask(Count(1)), lambda: w.actor.ask(Count(90))):
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(ask_too_much)
        assert stored == [3]


async def test_a_refusal_that_rests_on_old_news_is_decided_again(
    autojump_clock: MockClock,
) -> None:
    """After a conflict everybody is decided on what the log holds."""
    async with scene() as s:
        await s.actor.ask(Count(80))
        s.log.troubles = [None, lambda: s.foreign(-50, version=3)]
        answers = await together(
            s.actor, lambda: s.actor.ask(Count(30)), lambda: s.actor.ask(Count(2))
        )
        assert answers == [64, 64]
        assert [COUNTS.decode(r).by for r in s.world.stored] == [1, 80, 1, -50, 30, 2]


async def test_who_has_an_answer_is_not_decided_again(autojump_clock: MockClock) -> None:
    """A command that crashed stays crashed after a conflict; those behind it are done."""
    async with scene() as s:
        s.log.troubles = [None, lambda: s.foreign(30, version=2)]
        crashes: list[object] = []
        s.actor._on_crash = lambda *crash: crashes.append(crash)
        answers = await together(
            s.actor, lambda: s.actor.ask(Count(-1)), lambda: s.actor.ask(Count(2))
        )
        assert isinstance(answers[0], Crashed)
        assert answers[1] == 34
        assert len(crashes) == 1


async def test_an_ask_that_writes_elsewhere_is_written_alone(autojump_clock: MockClock) -> None:
    """So that its conflict is nobody else's; those around it go together."""
    async with scene() as s:
        also = StreamWrite("claim/1", 0, [example_event()])
        answers = await together(
            s.actor,
            lambda: s.actor.ask(Count(1)),
            lambda: s.actor.ask(Count(1)),
            lambda: s.actor.ask(Count(1), also=[also]),
            lambda: s.actor.ask(Count(1)),
        )
        assert answers == [4, 4, 5, 6]
        sizes = [[len(write.events) for write in append.writes] for append, _ in s.log.appends]
        assert sizes == [[1], [2], [1, 1], [1]]


async def test_a_batch_takes_so_many(autojump_clock: MockClock) -> None:
    """Whoever waits beyond that comes with the next one."""
    async with scene() as s:
        await together(s.actor, *[lambda: s.actor.ask(Count(1))] * (BATCH + 2))
        sizes = [len(append.writes[0].events) for append, _ in s.log.appends]
        assert sizes == [1, BATCH, 2]


async def test_the_line_is_as_long_as_it_may_be(autojump_clock: MockClock) -> None:
    """The first one too many is told how many wait."""
    async with scene() as s:
        answers = await together(s.actor, *[s.actor.look] * (MAX_MAIL + 1))
        assert answers[:-1] == [2] * MAX_MAIL
        assert isinstance(answers[-1], Overloaded)
        assert answers[-1].queued == MAX_MAIL


async def test_new_work_goes_with_new_work_only(autojump_clock: MockClock) -> None:
    """It may be refused, and takes nobody along who would have waited; a look never is any."""
    async with scene() as s:

        def old() -> Awaitable[Any]:
            return s.actor.ask(Count(1))

        def new() -> Awaitable[Any]:
            return s.actor.ask(Count(1), new_work=True)

        await old()
        await new()
        assert [new_work for _, new_work in s.log.appends] == [False, True]
        s.log.appends.clear()
        await together(s.actor, old, old, new, new, s.actor.look, old)
        written = [(len(a.writes[0].events), new_work) for a, new_work in s.log.appends]
        assert written == [(1, False), (2, False), (2, True), (1, False)]


async def test_in_line_it_can_be_too_late(autojump_clock: MockClock) -> None:
    """When no more tasks are run, those in line are told so and the actor is idle."""
    async with scene() as s:
        actor = s.actor

        def start(_: object) -> None:
            raise LogClosed("going down")

        actor._start = start
        (answer,) = await together(actor, actor.look)
        assert str(answer) == "going down"
        assert actor.is_idle
        assert (await actor.look()).state == 2


async def test_when_the_worker_is_cancelled_everybody_in_line_is_told(
    autojump_clock: MockClock,
) -> None:
    """What it had taken and what it had not; what was being written is done."""
    async with scene() as s:
        also = StreamWrite("claim/1", 0, [example_event()])

        async def go_down() -> None:
            s.world.nursery.cancel_scope.cancel()

        s.log.troubles = [None, None, go_down]
        with trio.CancelScope(shield=True):  # those who ask live on
            answers = await together(
                s.actor,
                lambda: s.actor.ask(Count(1), also=[replace(also, stream="claim/2")]),
                lambda: s.actor.ask(Count(1), also=[also]),
                lambda: s.actor.ask(Count(1)),
            )
        assert answers[0] == 3
        assert [type(answer) for answer in answers[1:]] == [LogClosed, LogClosed]
        assert [str(answer) for answer in answers[1:]] == ["this process is going down"] * 2
        assert s.actor.is_idle


async def test_cancelled_while_others_wait_it_is_done_all_the_same(
    autojump_clock: MockClock,
) -> None:
    """An ask that is being written cannot be taken back, and leaves the line as it is."""
    async with scene() as s:
        impatient = trio.CancelScope()

        async def ask() -> None:
            with impatient:
                await s.actor.ask(Count(1))

        async def others_come() -> None:
            nursery.start_soon(s.actor.look)
            await trio.testing.wait_all_tasks_blocked()
            impatient.cancel()

        s.log.troubles = [None, others_come]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: s.actor.ask(Count(1)))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(ask)
        assert impatient.cancelled_caught
        assert (await s.actor.look()).state == 3


MANY = replace(COUNTER, decide=lambda _state, command: (Counted(by=0),) * command.by)


@pytest.mark.parametrize("asks", [(600, 500), (400, 400, 400)])
async def test_what_is_too_much_together_is_done_one_by_one(
    autojump_clock: MockClock, asks: tuple[int, ...]
) -> None:
    """Nobody is refused because of who waits beside them."""
    async with scene() as s:
        actor = s.make(MANY)
        answers = await together(actor, *[lambda n=n: actor.ask(Count(n)) for n in asks])
        assert answers == [1] * len(asks)
        sizes = [len(append.writes[0].events) for append, _ in s.log.appends]
        assert sizes == [1, *asks]
        assert s.world.store.stream_state("counter/1").version == sum(asks) + 2


@pytest.mark.parametrize("asks", [(1001, 2, 3), (2, 1001, 3), (500, 600, 1001)])
async def test_what_is_too_much_alone_hurts_only_its_asker(
    autojump_clock: MockClock, asks: tuple[int, ...]
) -> None:
    """Wherever it stands in line; its asker hears what was wrong with it."""
    async with scene() as s:
        actor = s.make(MANY)
        answers = await together(actor, *[lambda n=n: actor.ask(Count(n)) for n in asks])
        for count, answer in zip(asks, answers, strict=True):
            if count > MAX_APPEND_EVENTS:
                assert isinstance(answer, InvalidAppend)
            else:
                assert answer == 1
        written = sum(len(append.writes[0].events) for append, _ in s.log.appends)
        assert written == 1 + sum(count for count in asks if count <= MAX_APPEND_EVENTS)


async def test_nothing_to_say_in_line_is_no_mistake(autojump_clock: MockClock) -> None:
    """A command without events is answered with the state that the others made."""
    async with scene() as s:
        answers = await together(
            s.actor, lambda: s.actor.ask(Count(5)), lambda: s.actor.ask(Count(0)), s.actor.look
        )
        assert answers == [7, 7, 7]
