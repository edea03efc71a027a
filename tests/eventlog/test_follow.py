from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from perdure.eventlog import (
    EVERYTHING,
    Append,
    EventLog,
    Filter,
    Follow,
    FollowLimits,
    LogClosed,
    MemoryStore,
    Metadata,
    NewEvent,
    Record,
    StreamWrite,
    TailLimits,
    cbor,
    open_log,
)
from perdure.eventlog.store import Bounds
from perdure.eventlog.testing import EXAMPLE_TIME, example_event, example_log
from tests.eventlog.conftest import SteadyEnv


@pytest.fixture
def filled(store: MemoryStore) -> MemoryStore:
    """A store of 40 records in 4 streams and 2 scopes."""
    store.commit(example_log(streams=4, length=10))
    return store


async def append_to(log: EventLog, stream: str, expected: int, count: int = 1) -> None:
    """Append events one by one."""
    for number in range(count):
        write = StreamWrite(stream, expected + number, [example_event()])
        await log.append(Append([write]))


async def collect(follow: Follow, count: int) -> list[Record]:
    """Pull until so many records came."""
    found: list[Record] = []
    with trio.fail_after(1000):
        while len(found) < count:
            found.extend((await follow.next_batch()).records)
    return found


async def test_following_begins_with_the_past_and_goes_on_live(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore
) -> None:
    """Catch-up and live join with no gap and no duplicate."""
    async with open_log(env, filled) as log, trio.open_nursery() as nursery:
        follow = await log.follow(limits=FollowLimits(records=7))
        nursery.start_soon(append_to, log, "run/9", 0, 20)
        assert await collect(follow, 60) == filled.read_all(0, Bounds()).records


async def test_a_follower_is_told_once_that_it_is_live(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore
) -> None:
    """Reaching the live edge is an answer of its own, also in an empty log."""
    async with open_log(env, filled) as log:
        follow = await log.follow()
        first = await follow.next_batch()
        assert (len(first.records), first.live) == (40, False)
        second = await follow.next_batch()
        assert (second.records, second.live, second.cursor) == ([], True, first.cursor)
    async with open_log(env, MemoryStore()) as log:
        batch = await (await log.follow()).next_batch()
        assert (batch.records, batch.live) == ([], True)


async def test_a_cursor_goes_on_where_it_was(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore
) -> None:
    """Dropped and taken up again, through a restart, a follower misses and repeats nothing."""
    seen: list[Record] = []
    cursor = None
    for _ in range(10):
        async with open_log(env, filled) as log:
            follow = await log.follow(cursor, limits=FollowLimits(records=6))
            batch = await follow.next_batch()
            seen.extend(batch.records)
            cursor = batch.cursor
    assert seen == filled.read_all(0, Bounds()).records


async def test_reading_and_then_following_leaves_no_hole(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore
) -> None:
    """The cursor of a read is exactly where following goes on."""
    async with open_log(env, filled) as log, trio.open_nursery() as nursery:
        nursery.start_soon(append_to, log, "run/9", 0, 5)
        await trio.sleep(5)
        page = await log.read_all()
        follow = await log.follow(page.cursor)
        await trio.sleep(30)
        rest = await collect(follow, 45 - len(page.records))
        assert [*page.records, *rest] == filled.read_all(0, Bounds()).records


FILTERS = {
    "everything": EVERYTHING,
    "one stream": Filter(streams=frozenset({"run/1"})),
    "two streams": Filter(streams=frozenset({"run/1", "run/3"})),
    "one scope": Filter(scopes=frozenset({"session/1"})),
    "a name": Filter(names=frozenset({"example.happened"})),
    "a name that never comes": Filter(names=frozenset({"no.such"})),
    "a stream in another scope": Filter(
        streams=frozenset({"run/1"}), scopes=frozenset({"session/1"})
    ),
}


@pytest.mark.parametrize("where", FILTERS.values(), ids=FILTERS.keys())
@pytest.mark.parametrize("page", [1, 3, 1000])
async def test_filters_give_the_same_from_disk_and_live(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore, where: Filter, page: int
) -> None:
    """What matches is delivered, in order, wherever it comes from, and nothing else."""
    wanted = [r for r in filled.read_all(0, Bounds()).records if where.matches(r)]
    limits = FollowLimits(records=page)
    async with open_log(env, filled) as log, trio.open_nursery() as nursery:
        follow = await log.follow(None, where, limits)
        assert await collect(follow, len(wanted)) == wanted
        await trio.sleep(1)
        nursery.start_soon(append_to, log, "run/9", 0, 3)
        nursery.start_soon(append_to, log, "run/1-live", 0, 1)
        await trio.sleep(60)
        live = [r for r in filled.read_all(0, Bounds()).records[40:] if where.matches(r)]
        assert len(live) in {0, 4}
        assert await collect(follow, len(live)) == live


async def test_metadata_fields_can_be_asked_for(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """A follower of one status, or one plugin and two statuses, gets just those."""

    def event(number: int) -> NewEvent:
        fields = {"status": ["queued", "running", "failed"][number % 3], "plugin": f"p{number % 2}"}
        return NewEvent(
            name="run.changed",
            body=cbor.encode(number),
            event_id=number.to_bytes(16, "big"),
            event_time=EXAMPLE_TIME,
            meta=Metadata(fields=fields).encode(),
        )

    async with open_log(env, store) as log:
        await log.append(Append([StreamWrite("run/1", 0, [event(n) for n in range(12)])]))
        running = Filter(fields={"status": frozenset({"running"})})
        found = await collect(await log.follow(None, running), 4)
        assert [cbor.decode(r.body) for r in found] == [1, 4, 7, 10]
        both = Filter(
            fields={"status": frozenset({"queued", "failed"}), "plugin": frozenset({"p1"})}
        )
        found = await collect(await log.follow(None, both), 4)
        assert [cbor.decode(r.body) for r in found] == [3, 5, 9, 11]


async def test_a_follow_that_matches_nothing_still_moves_its_cursor(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore
) -> None:
    """A heartbeat brings the new place, so that a reconnect does not read everything again."""
    async with open_log(env, filled) as log, trio.open_nursery() as nursery:
        follow = await log.follow(None, Filter(names=frozenset({"no.such"})))
        live = await follow.next_batch()
        assert live.live
        assert live.cursor == log.cursor(await log.head())
        nursery.start_soon(append_to, log, "run/9", 0, 2)
        started = trio.current_time()
        heartbeat = await follow.next_batch()
        assert heartbeat.records == []
        assert heartbeat.cursor != live.cursor
        assert trio.current_time() - started == pytest.approx(15, abs=0.1)
        with trio.move_on_after(100) as nothing_new:
            await follow.next_batch()
        assert nothing_new.cancelled_caught


async def test_cancelling_a_pull_loses_nothing(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore
) -> None:
    """A pull cut off at any moment leaves the place where it was."""
    async with open_log(env, filled) as log, trio.open_nursery() as nursery:
        nursery.start_soon(append_to, log, "run/9", 0, 10)
        follow = await log.follow(limits=FollowLimits(records=3))
        seen: list[Record] = []
        patience = 0.0
        while len(seen) < 50:
            patience = (patience + 0.37) % 3
            with trio.move_on_after(patience):
                seen.extend((await follow.next_batch()).records)
        assert seen == filled.read_all(0, Bounds()).records


async def test_the_tail_is_bounded_and_a_slow_follower_reads_the_disk(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """However far a follower falls behind, memory holds only the newest records."""
    limits = TailLimits(records=10)
    async with open_log(env, store, tail_limits=limits) as log:
        follow = await log.follow()
        await follow.next_batch()
        for number in range(30):
            events = [example_event() for _ in range(10)]
            await log.append(Append([StreamWrite(f"run/{number}", 0, events)]))
        assert len(log.tail._records) <= 12
        assert await collect(follow, 300) == store.read_all(0, Bounds()).records


async def test_the_tail_is_bounded_in_bytes(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """A few large records push out many small ones."""
    async with open_log(env, store, tail_limits=TailLimits(bytes=10_000)) as log:
        for number in range(10):
            large = example_event(filling=b"x" * 4000)
            await log.append(Append([StreamWrite(f"run/{number}", 0, [large])]))
        assert sum(r.size for r in log.tail._records) <= 12_500
        assert await collect(await log.follow(), 10) == store.read_all(0, Bounds()).records


async def test_a_batch_is_bounded_in_bytes(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """Large records come in small batches, from the tail and from the disk."""
    limits = FollowLimits(bytes=5000)
    async with open_log(env, store) as log:
        live = await log.follow(None, limits=limits)
        for number in range(6):
            large = example_event(filling=b"x" * 2000)
            await log.append(Append([StreamWrite(f"run/{number}", 0, [large])]))
        assert [len((await live.next_batch()).records) for _ in range(2)] == [3, 3]
    async with open_log(env, store) as log:
        from_disk = await log.follow(None, limits=limits)
        assert [len((await from_disk.next_batch()).records) for _ in range(2)] == [3, 3]


async def test_many_followers_are_woken_by_one_commit(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """Everyone who waits sees a commit at the moment it is answered."""
    arrivals: list[float] = []

    async def wait_for_one(log: EventLog) -> None:
        await collect(await log.follow(), 1)
        arrivals.append(trio.current_time())

    async with open_log(env, store) as log, trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(wait_for_one, log)
        await trio.sleep(5)
        await append_to(log, "run/1", 0)
        answered = trio.current_time()
        await trio.testing.wait_all_tasks_blocked()
        assert len(arrivals) == 100
        assert max(arrivals) - answered < 0.1


async def test_a_follower_of_a_closed_log_is_told(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """Waiting followers do not wait for ever."""
    told: list[str] = []

    async def follow_to_the_end(log: EventLog) -> None:
        follow = await log.follow()
        try:
            while True:
                await follow.next_batch()
        except LogClosed as error:
            told.append(str(error))

    async with trio.open_nursery() as nursery, open_log(env, store) as log:
        nursery.start_soon(follow_to_the_end, log)
        await trio.sleep(1)
    assert told == ["the log is closed"]


async def test_a_reading_process_polls_for_new_commits(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore
) -> None:
    """Beside the writer a follower sees every commit, a little later."""
    reader_env = SteadyEnv()
    reader_env.delay = 0.001
    beside = MemoryStore(writable=False)
    beside._records, beside._streams, beside._scopes = (
        filled._records,
        filled._streams,
        filled._scopes,
    )
    async with open_log(env, filled) as log, open_log(reader_env, beside) as reader:
        follow = await reader.follow()
        assert len(await collect(follow, 40)) == 40
        await append_to(log, "run/9", 0, 3)
        assert [r.stream for r in await collect(follow, 3)] == ["run/9"] * 3
        assert await reader.head() == await log.head()


async def test_a_reading_process_that_slept_long_skips_in_memory_and_misses_nothing(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """Far behind, its tail starts anew at the head and followers read the disk."""
    beside = MemoryStore(writable=False)
    beside._records, beside._streams, beside._scopes = store._records, store._streams, store._scopes
    limits = TailLimits(records=5)
    async with open_log(SteadyEnv(), beside, tail_limits=limits) as reader:
        follow = await reader.follow()
        await follow.next_batch()
        store.commit(example_log(streams=4, length=10))
        assert await collect(follow, 40) == store.read_all(0, Bounds()).records
        assert len(reader.tail._records) <= 5
