from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from perdure.eventlog import (
    START,
    Append,
    EventLog,
    InvalidCursor,
    Mark,
    MemorySnapshots,
    MemoryStore,
    RealEnv,
    Record,
    Snapshot,
    SnapshotFile,
    SqliteStore,
    StreamWrite,
    open_log,
)
from perdure.eventlog.cursor import format_cursor
from perdure.eventlog.snapshots import KEPT_PER_STREAM, Snapshots
from perdure.eventlog.store import Bounds
from perdure.eventlog.testing import EXAMPLE_TIME, example_event, example_log, example_record
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


# Snapshots


@pytest.fixture(params=["memory", "file"])
def make_snapshots(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Snapshots]:
    """Both kinds of snapshot cache."""
    if request.param == "memory":
        return MemorySnapshots

    def make() -> Snapshots:
        cache = SnapshotFile(tmp_path / "snapshots.db")
        request.addfinalizer(cache.close)
        return cache

    return make


async def snapshot_of(
    log: EventLog, stream: str, fold: str, at: Mark | None = None
) -> tuple[bytes, int] | None:
    """The state that a stream would be folded from, and the version it is of."""
    state, page = await log.read_from_snapshot(stream, fold, at=at)
    return None if state is None else (state, page.records[0].version)


async def save(log: EventLog, record: Record, fold: str, state: bytes) -> None:
    """Keep a state up to a record."""
    await log.save_snapshot(record.stream, record.version, record.event_id, fold=fold, state=state)


async def test_a_snapshot_is_found_for_its_stream_and_fold(
    autojump_clock: MockClock,
    env: SteadyEnv,
    filled: MemoryStore,
    make_snapshots: Callable[[], Snapshots],
) -> None:
    """The newest one at or before the place asked for; another fold finds nothing."""
    records = filled.read_stream("run/1", 0, Bounds()).records
    async with open_log(env, filled, snapshots=make_snapshots()) as log:
        assert await snapshot_of(log, "run/1", "fold-1") is None
        for version in (2, 5):
            await save(log, records[version - 1], "fold-1", b"state %d" % version)
        assert await snapshot_of(log, "run/1", "fold-1") == (b"state 5", 5)
        assert await snapshot_of(log, "run/1", "fold-1", records[3].mark) == (b"state 2", 2)
        assert await snapshot_of(log, "run/1", "fold-1", records[0].mark) is None
        assert await snapshot_of(log, "run/1", "fold-2") is None
        assert await snapshot_of(log, "run/2", "fold-1") is None


async def test_a_snapshot_of_another_history_is_ignored(
    autojump_clock: MockClock,
    env: SteadyEnv,
    filled: MemoryStore,
    make_snapshots: Callable[[], Snapshots],
) -> None:
    """Neither a restored log nor one with other events is folded from it."""
    snapshots = make_snapshots()
    record = filled.read_stream("run/1", 0, Bounds()).records[4]
    async with open_log(env, filled, snapshots=snapshots) as log:
        await save(log, record, "fold-1", b"state")
    restored = MemoryStore("f" * 16)
    restored.commit(filled.read_all(0, Bounds()).records)
    other = MemoryStore(filled.generation)
    other.commit(example_log(streams=4, length=10))
    shorter = MemoryStore(filled.generation)
    shorter.commit([example_record(1, "run/1", scope="session/0")])
    for store in (restored, other, shorter):
        async with open_log(env, store, snapshots=snapshots) as log:
            assert await snapshot_of(log, "run/1", "fold-1") is None


async def test_only_a_few_snapshots_are_kept(make_snapshots: Callable[[], Snapshots]) -> None:
    """Old snapshots and those of older folds make room for new ones."""
    store = MemoryStore()
    store.commit([example_record(n, version=n) for n in range(1, 11)])
    env = SteadyEnv()
    env.delay = 0
    snapshots = make_snapshots()
    async with open_log(env, store, snapshots=snapshots) as log:
        for record in store.read_all(0, Bounds()).records:
            await save(log, record, "fold-1", b"")
    kept = [
        n
        for n in range(1, 11)
        if (s := snapshots.newest("run/1", "fold-1", store.generation, n)) and s.version == n
    ]
    assert kept == list(range(11 - KEPT_PER_STREAM, 11))


async def test_a_restored_log_makes_snapshots_of_its_own(
    autojump_clock: MockClock,
    env: SteadyEnv,
    filled: MemoryStore,
    make_snapshots: Callable[[], Snapshots],
) -> None:
    """Snapshots of the log before do not stand in the way of new ones."""
    snapshots = make_snapshots()
    records = filled.read_stream("run/1", 0, Bounds()).records
    async with open_log(env, filled, snapshots=snapshots) as log:
        for record in records:
            await save(log, record, "fold-1", b"old")
    restored = MemoryStore("f" * 16)
    restored.commit(filled.read_all(0, Bounds()).records)
    async with open_log(env, restored, snapshots=snapshots) as log:
        await save(log, records[1], "fold-1", b"new")
        assert await snapshot_of(log, "run/1", "fold-1") == (b"new", 2)


async def test_two_folds_of_one_stream_do_not_evict_each_other(
    autojump_clock: MockClock,
    env: SteadyEnv,
    filled: MemoryStore,
    make_snapshots: Callable[[], Snapshots],
) -> None:
    """Each projection has its own snapshots."""
    records = filled.read_stream("run/1", 0, Bounds()).records
    async with open_log(env, filled, snapshots=make_snapshots()) as log:
        await save(log, records[1], "fold-a", b"a")
        await save(log, records[2], "fold-b", b"b")
        assert (await snapshot_of(log, "run/1", "fold-a")) is not None
        assert (await snapshot_of(log, "run/1", "fold-b")) is not None


def test_snapshots_are_saved_from_several_threads(make_snapshots: Callable[[], Snapshots]) -> None:
    """The log's reading threads use the cache at the same time."""
    snapshots = make_snapshots()

    def work(number: int) -> None:
        for version in range(200):
            snapshots.save(
                Snapshot(
                    stream=f"run/{version % 7}",
                    version=version,
                    fold="f",
                    generation="0",
                    check=b"",
                    state=b"",
                )
            )
            snapshots.newest(f"run/{number}", "f", "0", None)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert snapshots.newest("run/1", "f", "0", None) is not None


def test_a_damaged_snapshot_file_is_started_anew(tmp_path: Path) -> None:
    """A cache never stops a start."""
    path = tmp_path / "snapshots.db"
    path.write_bytes(b"rubbish" * 1000)
    cache = SnapshotFile(path)
    assert cache.newest("run/1", "fold-1", "0", None) is None
    cache.close()
    assert cache.newest("run/1", "fold-1", "0", None) is None  # closed: as good as empty


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
