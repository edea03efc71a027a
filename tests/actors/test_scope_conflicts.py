"""Actors that fold their scope, while others write there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.decider import Origin
from perdure.actors.errors import Crashed, NoSuchActor
from perdure.actors.mailbox import TRIES
from perdure.eventlog import StreamWrite, Unmoved
from perdure.eventlog.errors import ScopeMoved, WrongExpectedVersion
from tests.actors.test_mailbox import COUNTS, Counted
from tests.actors.test_scopes import (
    NOTES,
    SESSION,
    STREAM,
    Note,
    Noted,
    Odd,
    Session,
    evolve,
    world,
)


async def test_a_scope_that_moves_meanwhile_is_folded_and_decided_again(
    autojump_clock: MockClock,
) -> None:
    """The append holds only for the scope as it was decided on; what came is in the next try."""
    async with world() as w:
        await w.neighbour(2)
        w.log.before = [lambda: w.neighbour(2, "run/2"), lambda: w.neighbour(4, "run/3")]
        folded = await w.actor.ask(Note())
        assert (folded.state.total, folded.state.notes) == (8, 2)
        noted = [NOTES.decode(r).total for r in (await w.log.read_stream(STREAM)).records]
        assert noted == [0, 8]
        folds = frozenset({Counted.event_name})
        expected = [(Unmoved(STREAM, position, folds),) for position in (2, 3, 4)]
        assert [append.unmoved for append in w.log.appends] == expected


async def test_what_it_does_not_fold_keeps_nobody_waiting(autojump_clock: MockClock) -> None:
    """Neighbours may write other events all the time: a decision does not depend on them."""
    async with world() as w:
        await w.neighbour(2)

        async def other() -> None:
            await w.write(f"run/{len(w.versions)}", Noted(total=1), NOTES, STREAM)

        w.log.before = [other, other]  # from the second on the scope's events are told apart
        assert (await w.actor.ask(Note())).state.notes == 2
        tries = len(w.log.appends)
        for _ in range(10):
            w.log.before = [other]
            await w.actor.ask(Note())
        assert len(w.log.appends) == tries + 10


async def test_a_busy_neighbour_does_not_keep_it_from_deciding(
    autojump_clock: MockClock,
) -> None:
    """Also when what it folds is written without a pause, each ask comes to its end."""
    async with world() as w, trio.open_nursery() as nursery:

        async def busy(stream: str) -> None:
            while True:
                await w.neighbour(2, stream)

        for number in range(3):
            nursery.start_soon(busy, f"run/{number}")
        for _ in range(20):
            await w.actor.ask(Note())
        nursery.cancel_scope.cancel()


async def test_a_long_scope_without_its_stream_is_no_actor(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages are read once each, whatever lies in them."""
    monkeypatch.setattr("perdure.eventlog.reading.PAGE_RECORDS", 3)
    monkeypatch.setattr("perdure.eventlog.log.PAGE_RECORDS", 3)
    async with world() as w:
        for number in range(8):
            await w.write(f"run/{number}", Noted(total=1), NOTES, "session/9")
        with trio.fail_after(5), pytest.raises(NoSuchActor):
            await w.make("session/9").ask(Note())


async def test_a_fold_that_fails_on_what_is_written_along_leaves_the_log_untouched(
    autojump_clock: MockClock,
) -> None:
    """What an append creates in the scope is folded before it is written, as all else is."""

    def failing(session: Session | None, event: Any, origin: Origin) -> Session:
        if isinstance(event, Counted) and event.by == 13:
            raise ZeroDivisionError("a bug")
        return evolve(session, event, origin)

    async with world() as w:
        await w.neighbour(2)
        w.actor._decider = replace(SESSION, evolve=failing)
        event = COUNTS.encode(Counted(by=13), event_id=w.env.new_id().bytes, event_time=1)
        head = await w.log.head()
        with pytest.raises(Crashed):
            await w.actor.ask(Note(), also=[StreamWrite("run/9", 0, [event], STREAM)])
        assert await w.log.head() == head
        assert (await w.actor.ask(Note())).state.notes == 2


async def test_it_may_become_impossible_meanwhile(autojump_clock: MockClock) -> None:
    """Decided again, a command may be refused: nothing was written."""
    async with world() as w:
        await w.neighbour(2)
        w.log.before = [lambda: w.neighbour(1, "run/2")]
        with pytest.raises(Odd):
            await w.actor.ask(Note())
        assert len((await w.log.read_stream(STREAM)).records) == 1


async def test_a_scope_that_never_rests_is_told_as_a_conflict(
    autojump_clock: MockClock,
) -> None:
    """After some tries while others write, and some more while they wait: not for ever."""
    async with world() as w:
        await w.neighbour(2)
        w.log.before = [lambda: w.neighbour(2, f"run/{len(w.versions)}")] * 5
        w.log.before += [ScopeMoved(STREAM, 1, 2)] * 100
        with pytest.raises(ScopeMoved):
            await w.actor.ask(Note())
        assert len(w.log.appends) == 2 * TRIES
        w.log.before = []
        assert (await w.actor.ask(Note())).state.notes == 2


async def test_a_conflict_of_its_own_stream_is_folded_too(autojump_clock: MockClock) -> None:
    """Somebody else has written its stream: it knows that, and decides again."""
    async with world() as w:
        await w.neighbour(2)
        w.log.before = [lambda: w.write(STREAM, Noted(total=1), NOTES, STREAM)]
        assert (await w.actor.ask(Note())).state.notes == 3


async def test_a_conflict_of_what_is_written_along_is_told_to_the_asker(
    autojump_clock: MockClock,
) -> None:
    """A stream that the asker writes along is not the actor's to fold."""
    async with world() as w:
        await w.neighbour(2)
        event = COUNTS.encode(Counted(by=1), event_id=w.env.new_id().bytes, event_time=1)
        also = [StreamWrite("claim/1", 7, [event])]
        with pytest.raises(WrongExpectedVersion):
            await w.actor.ask(Note(), also=also)
        assert (await w.actor.ask(Note())).state.notes == 2
