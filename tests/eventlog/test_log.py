from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from perdure.eventlog import (
    START,
    Append,
    InvalidCursor,
    Mark,
    MemoryStore,
    RealEnv,
    SqliteStore,
    StreamWrite,
    open_log,
)
from perdure.eventlog.cursor import format_cursor
from perdure.eventlog.store import Bounds
from perdure.eventlog.testing import EXAMPLE_TIME, example_event, example_log
from tests.eventlog.conftest import SteadyEnv


@pytest.fixture
def filled(store: MemoryStore) -> MemoryStore:
    """A store of 40 records in 4 streams and 2 scopes."""
    store.commit(example_log(streams=4, length=10))
    return store


# Cursors


async def test_every_place_has_a_cursor_that_leads_back(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore
) -> None:
    """Also the start, also in an empty log, from the tail and from disk alike."""
    async with open_log(env, filled) as log:
        await log.append(Append([StreamWrite("run/9", 0, [example_event()])]))
        for mark in (START, *(r.mark for r in filled.read_all(0, Bounds()).records)):
            assert await log.resolve(log.cursor(mark)) == mark
    async with open_log(env, MemoryStore()) as log:
        assert await log.head() == START
        assert await log.resolve(log.cursor(START)) == START


async def test_every_bad_cursor_is_refused(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore
) -> None:
    """Malformed, foreign, ahead of the log, not matching: never a silent restart."""
    record = filled.read_all(0, Bounds()).records[6]
    generation = filled.generation
    bad = {
        "": "malformed",
        "7": "malformed",
        "cursor_147": "malformed",
        "A" * 28: "malformed",
        format_cursor("f" * 16, record.mark): "another log",
        format_cursor(generation, Mark(41, record.event_id)): "no such position",
        format_cursor(generation, Mark((1 << 63) - 1, record.event_id)): "no such position",
        format_cursor(generation, Mark(8, record.event_id)): "does not match",
        format_cursor(generation, Mark(0, record.event_id)): "does not match",
    }
    async with open_log(env, filled) as log:
        for cursor, reason in bad.items():
            with pytest.raises(InvalidCursor, match=reason):
                await log.resolve(cursor)
            with pytest.raises(InvalidCursor, match=reason):
                await log.follow(cursor)


# Reading


async def test_a_read_says_up_to_where_it_is_true(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore
) -> None:
    """A page that ends early is true up to its last record, a complete one up to the head."""
    async with open_log(env, filled) as log:
        page = await log.read_stream("run/1", limit=3)
        assert page.more
        assert page.mark == page.records[-1].mark
        page = await log.read_stream("run/1", after=3)
        assert not page.more
        assert page.mark == await log.head()
        assert await log.resolve(page.cursor) == page.mark


async def test_every_read_can_look_at_the_past(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore
) -> None:
    """As the log was at a place: streams, scopes and everything, page by page."""
    async with open_log(env, filled) as log:
        at = filled.mark_at(17)
        assert at is not None
        past = [r for r in filled.read_all(0, Bounds()).records if r.position <= 17]
        assert (await log.read_all(at=at)).records == past
        assert (await log.read_all(at=at)).mark == at
        stream = await log.read_stream("run/0", at=at)
        assert stream.records == [r for r in past if r.stream == "run/0"]
        scope = await log.read_scope("session/0", after=4, at=at)
        assert scope.records == [r for r in past if r.scope == "session/0" and r.position > 4]
        assert scope.mark == at


async def test_an_instant_is_a_place(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore
) -> None:
    """The log as it was at a moment of wall time."""
    async with open_log(env, filled) as log:
        assert (await log.mark_before(EXAMPLE_TIME + 17)).position == 17
        assert await log.mark_before(0) == START


async def test_a_page_has_at_least_one_record(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore
) -> None:
    """Asking for no records is a mistake; asking for too many gives a full page."""
    async with open_log(env, filled) as log:
        with pytest.raises(ValueError, match="a page of 0 records"):
            await log.read_all(limit=0)
        assert len((await log.read_all(limit=1 << 40)).records) == 40


# The whole, on a real disk with real threads


async def test_the_real_thing_works(tmp_path: Path) -> None:
    """SQLite, threads, a writer and a reader beside it: what one appends the other follows."""
    path, env = tmp_path / "log.db", RealEnv()
    writer_store = SqliteStore.open(path, env=env)
    reader_store = SqliteStore.open_reader(path)
    async with open_log(env, writer_store) as log, open_log(env, reader_store) as reader:
        follow = await reader.follow()
        async with trio.open_nursery() as nursery:
            for number in range(20):
                event = example_event(number=number)
                append = Append([StreamWrite(f"run/{number}", 0, [event])])
                nursery.start_soon(log.append, append)
        seen = 0
        while seen < 20:
            with trio.fail_after(10):
                seen += len((await follow.next_batch()).records)
        assert await reader.head() == await log.head()
    reader_store.close()
    writer_store.close()
