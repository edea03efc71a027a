from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.errors import Crashed, NoSuchActor
from perdure.actors.kind import Kind
from perdure.eventlog import (
    Append,
    EventLog,
    MemoryStore,
    OutcomeUnknown,
    StoreFailed,
    StreamWrite,
    open_log,
)
from perdure.runtime.kernel.live_actors import LiveActors
from tests.actors.test_mailbox import COUNTER, COUNTS, Count, Counted, Moody, TooMuch
from tests.eventlog.conftest import SteadyEnv

KIND = Kind(
    name="counter",
    decider=COUNTER,
    view=lambda folded: {"count": folded.state},
    tenant=lambda _: "local",
    not_found="COUNTER_NOT_FOUND",
)


@asynccontextmanager
async def registry(
    store: MemoryStore | None = None, *, idle: float = 60, counters: int = 3
) -> AsyncIterator[LiveActors[int, Count, Counted]]:
    """Run a registry over some counters that have counted one."""
    env = SteadyEnv()
    async with open_log(env, store or MemoryStore()) as log, trio.open_nursery() as nursery:
        await create(log, env, counters)
        registry = LiveActors(KIND, log=log, env=env, idle=idle)
        await nursery.start(registry.run)
        yield registry
        nursery.cancel_scope.cancel()


async def create(log: EventLog, env: SteadyEnv, counters: int) -> None:
    """Make the streams of some counters."""
    for number in range(counters):
        first = COUNTS.encode(Counted(by=1), event_id=env.new_id().bytes, event_time=1)
        await log.append(Append([StreamWrite(f"counter/{number}", 0, [first])]))


async def test_an_actor_starts_when_it_is_first_asked(autojump_clock: MockClock) -> None:
    """Nothing lives before somebody asks; then it stays for the next ask."""
    async with registry() as actors:
        assert actors.live == 0
        assert (await actors.ask("counter/1", Count(1))).state == 2
        assert (await actors.ask("counter/1", Count(1))).state == 3
        assert (actors.live, actors.started) == (1, 1)
        assert actors.peek("counter/1") is not None
        assert actors.peek("counter/2") is None


async def test_an_idle_actor_is_let_go_and_comes_back(autojump_clock: MockClock) -> None:
    """Whoever asks later notices nothing."""
    async with registry(idle=5) as actors:
        await actors.ask("counter/1", Count(1))
        await trio.sleep(10)
        assert actors.live == 0
        assert (await actors.ask("counter/1", Count(1))).state == 3


async def test_asks_that_race_with_passivation_are_all_answered(
    autojump_clock: MockClock,
) -> None:
    """However close to the end of its time an actor is asked, it or its successor answers."""
    async with registry(idle=5) as actors, trio.open_nursery() as nursery:

        async def ask_at(moment: float) -> None:
            await trio.sleep(moment)
            await actors.ask("counter/1", Count(1))

        for tick in range(60):
            nursery.start_soon(ask_at, tick * 0.33)
        await trio.sleep(100)
        assert (await actors.ask("counter/1", Count(0))).state == 61


async def test_a_crash_touches_nobody_else(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The asker learns of it, it is logged, the same actor goes on, others never noticed."""
    async with registry() as actors:
        await actors.ask("counter/2", Count(1))
        with caplog.at_level(logging.ERROR), pytest.raises(Crashed):
            await actors.ask("counter/1", Count(-1))
        assert "the actor of counter/1 crashed" in caplog.text
        assert (await actors.ask("counter/1", Count(1))).state == 2
        assert (await actors.ask("counter/2", Count(1))).state == 3
        assert (actors.started, actors.crashed) == (2, 1)


async def test_refusals_restart_nothing(autojump_clock: MockClock) -> None:
    """A refused command is an answer like any other."""
    async with registry() as actors:
        for _ in range(20):
            with pytest.raises(TooMuch):
                await actors.ask("counter/1", Count(100))
        assert (actors.started, actors.crashed) == (1, 0)


async def test_what_was_never_created_is_not_there(autojump_clock: MockClock) -> None:
    """Asking for it leaves nothing behind."""
    async with registry() as actors:
        with pytest.raises(NoSuchActor):
            await actors.ask("counter/99", Count(1))
        assert actors.live == 0


async def test_a_failing_log_ends_everything(autojump_clock: MockClock) -> None:
    """Nobody goes on with a guess."""
    store = Moody()
    with pytest.raises(BaseExceptionGroup) as ended:  # noqa: PT012 - the life of a registry
        async with registry(store) as actors:
            await actors.ask("counter/1", Count(0))
            store.error = StoreFailed("on fire")
            await actors.ask("counter/1", Count(1))
    assert ended.group_contains(OutcomeUnknown)
