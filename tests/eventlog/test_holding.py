"""Holding a scope: others wait, and what depends on it goes first."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from perdure.eventlog import Append, EventLog, MemoryStore, StreamWrite, Unmoved, open_log
from perdure.eventlog.testing import example_event
from tests.eventlog.conftest import SteadyEnv


def write(stream: str, scope: str, *unmoved: Unmoved) -> Append:
    """Append one event to a new stream."""
    return Append([StreamWrite(stream, 0, [example_event()], scope)], unmoved)


async def noted(log: EventLog, append: Append, done: list[str]) -> None:
    """Append, and note when it is done."""
    await log.append(append)
    done.append(append.writes[0].stream)


async def test_appends_to_a_held_scope_wait(autojump_clock: MockClock) -> None:
    """Those of other scopes do not, and neither does one that requires the scope unmoved."""
    done: list[str] = []
    async with open_log(SteadyEnv(), MemoryStore()) as log:
        async with trio.open_nursery() as nursery, log.hold("session/1"):
            nursery.start_soon(noted, log, write("run/1", "session/1"), done)
            await wait_all_tasks_blocked()
            await noted(log, write("run/2", "session/2"), done)
            await noted(log, write("run/3", "session/1", Unmoved("session/1", 9)), done)
            assert done == ["run/2", "run/3"]
        assert done == ["run/2", "run/3", "run/1"]


async def test_a_scope_is_held_by_one_at_a_time(autojump_clock: MockClock) -> None:
    """The next one waits; one that gives up, or fails, leaves it free."""
    held: list[int] = []

    async def hold(log: EventLog, number: int) -> None:
        async with log.hold("session/1"):
            held.append(number)
            await trio.sleep(5)

    async with open_log(SteadyEnv(), MemoryStore()) as log, trio.open_nursery() as nursery:
        with pytest.raises(ZeroDivisionError):
            async with log.hold("session/1"):
                raise ZeroDivisionError
        nursery.start_soon(hold, log, 1)
        await wait_all_tasks_blocked()
        nursery.start_soon(hold, log, 2)
        await wait_all_tasks_blocked()
        assert held == [1]
        with trio.move_on_after(1):
            await hold(log, 3)
        await trio.sleep(10)
        assert held == [1, 2]
        done: list[str] = []
        await trio.sleep(10)
        await noted(log, write("run/1", "session/1"), done)
        assert done == ["run/1"]


async def test_recent_records_of_a_scope_come_from_memory(autojump_clock: MockClock) -> None:
    """None if they are too long ago, or if too much would have to be looked at."""
    async with open_log(SteadyEnv(), MemoryStore()) as log:
        for number in range(6):
            await log.append(write(f"run/{number}", f"session/{number % 2}"))
        found = log.recent_in_scope("session/1", 1)
        assert found is not None
        assert [record.position for record in found] == [2, 4, 6]
        assert log.recent_in_scope("session/1", 6) == []
        assert log.tail.after_in_scope("session/1", 0, 5) is None
        assert log.tail.after_in_scope("session/1", 1, 5) is not None
    async with open_log(SteadyEnv(), log.store) as again:
        assert again.recent_in_scope("session/1", 3) is None
