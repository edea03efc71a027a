from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest
from trio.testing import MockClock

from perdure.eventlog import (
    EventLog,
    Mark,
    MemorySnapshots,
    MemoryStore,
    Record,
    Snapshot,
    SnapshotFile,
    open_log,
)
from perdure.eventlog.snapshots import KEPT, Kind, SnapshotKey, Snapshots
from perdure.eventlog.store import Bounds
from perdure.eventlog.testing import example_log, example_record
from tests.eventlog.conftest import SteadyEnv


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


@pytest.fixture
def filled(store: MemoryStore) -> MemoryStore:
    """A store of 40 records in 4 streams and 2 scopes."""
    store.commit(example_log(streams=4, length=10))
    return store


class Subject:
    """What is folded: the stream run/1, or the scope session/0 that it is in."""

    def __init__(self, kind: Kind) -> None:
        """Fold a stream or a scope."""
        self.kind = kind
        self.name = {"stream": "run/1", "scope": "session/0"}[kind]

    def records(self, store: MemoryStore) -> Sequence[Record]:
        """All of its records."""
        read = store.read_stream if self.kind == "stream" else store.read_scope
        return read(self.name, 0, Bounds()).records

    async def save(self, log: EventLog, record: Record, fold: str, state: bytes) -> None:
        """Keep a state up to a record."""
        if self.kind == "stream":
            place = (record.stream, record.version, record.event_id)
            await log.save_snapshot(*place, fold=fold, state=state)
        else:
            await log.save_scope_snapshot(record.scope, *record.mark, fold=fold, state=state)

    async def found(
        self, log: EventLog, fold: str, at: Mark | None = None, *, name: str | None = None
    ) -> tuple[bytes, Record] | None:
        """The state that it would be folded from, and the record that the state ends with."""
        scope = self.kind == "scope"
        read = log.read_scope_from_snapshot if scope else log.read_from_snapshot
        state, page = await read(name or self.name, fold, at=at)
        return None if state is None else (state, page.records[0])


@pytest.fixture(params=get_args(Kind))
def subject(request: pytest.FixtureRequest) -> Subject:
    """Both kinds of folds that have snapshots."""
    return Subject(request.param)


async def test_a_snapshot_is_found_for_what_was_folded_and_its_fold(
    autojump_clock: MockClock,
    env: SteadyEnv,
    filled: MemoryStore,
    subject: Subject,
    make_snapshots: Callable[[], Snapshots],
) -> None:
    """The newest one at or before the place asked for; another fold finds nothing."""
    records = subject.records(filled)
    async with open_log(env, filled, snapshots=make_snapshots()) as log:
        assert await subject.found(log, "fold-1") is None
        for version in (2, 5):
            await subject.save(log, records[version - 1], "fold-1", b"state %d" % version)
        assert await subject.found(log, "fold-1") == (b"state 5", records[4])
        assert await subject.found(log, "fold-1", records[4].mark) == (b"state 5", records[4])
        assert await subject.found(log, "fold-1", records[3].mark) == (b"state 2", records[1])
        assert await subject.found(log, "fold-1", records[0].mark) is None
        assert await subject.found(log, "fold-2") is None
        assert await subject.found(log, "fold-1", name="run/2") is None


async def test_what_follows_a_snapshot_of_a_scope_is_all_of_the_scope(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore
) -> None:
    """From the record that the state ends with on, of all streams, up to the place asked for."""
    records = Subject("scope").records(filled)
    async with open_log(env, filled) as log:
        whole = await log.read_scope_from_snapshot("session/0", "fold-1")
        assert whole == (None, await log.read_scope("session/0"))
        await log.save_scope_snapshot("session/0", *records[6].mark, fold="fold-1", state=b"seven")
        state, page = await log.read_scope_from_snapshot("session/0", "fold-1")
        assert (state, page.records) == (b"seven", records[6:])
        assert len({record.stream for record in page.records}) == 2
        assert page.mark == await log.head()
        at = filled.mark_at(20)
        state, page = await log.read_scope_from_snapshot("session/0", "fold-1", at=at)
        assert (state, page.mark) == (b"seven", at)
        assert page.records == [r for r in records[6:] if r.position <= 20]


async def test_a_stream_and_a_scope_of_one_name_have_snapshots_of_their_own(
    autojump_clock: MockClock, env: SteadyEnv, make_snapshots: Callable[[], Snapshots]
) -> None:
    """A session's stream has the name of the session's scope."""
    store = MemoryStore()
    first = example_record(1, "session/1")
    store.commit([first, example_record(2, "run/1", scope="session/1")])
    async with open_log(env, store, snapshots=make_snapshots()) as log:
        await log.save_snapshot("session/1", 1, first.event_id, fold="fold-1", state=b"stream")
        assert (await log.read_scope_from_snapshot("session/1", "fold-1"))[0] is None
        await log.save_scope_snapshot("session/1", *first.mark, fold="fold-1", state=b"scope")
        assert (await log.read_scope_from_snapshot("session/1", "fold-1"))[0] == b"scope"
        assert (await log.read_from_snapshot("session/1", "fold-1"))[0] == b"stream"


async def test_a_snapshot_at_a_record_of_another_scope_is_passed_over(
    autojump_clock: MockClock, env: SteadyEnv, filled: MemoryStore
) -> None:
    """What follows begins with the record that the state ends with, so that is one of the scope."""
    foreign = Subject("scope").records(filled)[3].position + 2
    mark = filled.mark_at(foreign)
    assert mark is not None
    async with open_log(env, filled) as log:
        await log.save_scope_snapshot("session/1", *mark, fold="fold-1", state=b"right")
        assert (await log.read_scope_from_snapshot("session/1", "fold-1"))[0] == b"right"
        await log.save_scope_snapshot("session/0", *mark, fold="fold-1", state=b"wrong")
        assert (await log.read_scope_from_snapshot("session/0", "fold-1"))[0] is None


async def test_a_snapshot_of_another_history_is_ignored(
    autojump_clock: MockClock,
    env: SteadyEnv,
    filled: MemoryStore,
    subject: Subject,
    make_snapshots: Callable[[], Snapshots],
) -> None:
    """Neither a restored log nor one with other events is folded from it."""
    snapshots = make_snapshots()
    record = subject.records(filled)[4]
    async with open_log(env, filled, snapshots=snapshots) as log:
        await subject.save(log, record, "fold-1", b"state")
    restored = MemoryStore("f" * 16)
    restored.commit(filled.read_all(0, Bounds()).records)
    other = MemoryStore(filled.generation)
    other.commit(example_log(streams=4, length=10))
    shorter = MemoryStore(filled.generation)
    shorter.commit([example_record(1, "run/1", scope="session/0")])
    for store in (restored, other, shorter):
        async with open_log(env, store, snapshots=snapshots) as log:
            assert await subject.found(log, "fold-1") is None


async def test_only_a_few_snapshots_are_kept(
    subject: Subject, make_snapshots: Callable[[], Snapshots]
) -> None:
    """Old snapshots make room for new ones."""
    store = MemoryStore()
    store.commit([example_record(n, "run/1", n, scope="session/0") for n in range(1, 11)])
    env = SteadyEnv()
    env.delay = 0
    snapshots = make_snapshots()
    async with open_log(env, store, snapshots=snapshots) as log:
        for record in store.read_all(0, Bounds()).records:
            await subject.save(log, record, "fold-1", b"")
    key = SnapshotKey(subject.kind, subject.name, "fold-1", store.generation)
    kept = [n for n in range(1, 11) if (s := snapshots.newest(key, n)) and s.number == n]
    assert kept == list(range(11 - KEPT, 11))


async def test_a_restored_log_makes_snapshots_of_its_own(
    autojump_clock: MockClock,
    env: SteadyEnv,
    filled: MemoryStore,
    subject: Subject,
    make_snapshots: Callable[[], Snapshots],
) -> None:
    """Snapshots of the log before do not stand in the way of new ones."""
    snapshots = make_snapshots()
    records = subject.records(filled)
    async with open_log(env, filled, snapshots=snapshots) as log:
        for record in records:
            await subject.save(log, record, "fold-1", b"old")
    restored = MemoryStore("f" * 16)
    restored.commit(filled.read_all(0, Bounds()).records)
    async with open_log(env, restored, snapshots=snapshots) as log:
        await subject.save(log, records[1], "fold-1", b"new")
        assert await subject.found(log, "fold-1") == (b"new", records[1])


async def test_two_folds_of_one_history_do_not_evict_each_other(
    autojump_clock: MockClock,
    env: SteadyEnv,
    filled: MemoryStore,
    subject: Subject,
    make_snapshots: Callable[[], Snapshots],
) -> None:
    """Each projection has its own snapshots."""
    records = subject.records(filled)
    async with open_log(env, filled, snapshots=make_snapshots()) as log:
        await subject.save(log, records[1], "fold-a", b"a")
        for record in records[2:]:
            await subject.save(log, record, "fold-b", b"b")
        assert (await subject.found(log, "fold-a")) == (b"a", records[1])
        assert (await subject.found(log, "fold-b")) == (b"b", records[-1])


def test_snapshots_are_saved_from_several_threads(make_snapshots: Callable[[], Snapshots]) -> None:
    """The log's reading threads use the cache at the same time."""
    snapshots = make_snapshots()

    def work(number: int) -> None:
        for version in range(200):
            key = SnapshotKey("stream", f"run/{version % 7}", "f", "0")
            snapshots.save(Snapshot(key=key, number=version, check=b"", state=b""))
            snapshots.newest(SnapshotKey("stream", f"run/{number}", "f", "0"), None)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert snapshots.newest(SnapshotKey("stream", "run/1", "f", "0"), None) is not None


def test_a_damaged_snapshot_file_is_started_anew(tmp_path: Path) -> None:
    """A cache never stops a start."""
    path, key = tmp_path / "snapshots.db", SnapshotKey("stream", "run/1", "fold-1", "0")
    path.write_bytes(b"rubbish" * 1000)
    cache = SnapshotFile(path)
    assert cache.newest(key, None) is None
    cache.close()
    assert cache.newest(key, None) is None  # closed: as good as empty


# How an earlier release has made the file.
FORMAT_0 = """
CREATE TABLE snapshots (
    stream TEXT NOT NULL,
    fold TEXT NOT NULL,
    version INTEGER NOT NULL,
    generation TEXT NOT NULL,
    event_check BLOB NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (stream, fold, version)
) WITHOUT ROWID
"""


def test_a_snapshot_file_of_another_format_is_emptied(tmp_path: Path) -> None:
    """Snapshots of an earlier release are thrown away, those of this one stay."""
    path, key = tmp_path / "snapshots.db", SnapshotKey("stream", "run/1", "fold-1", "0")
    with closing(sqlite3.connect(path)) as database:
        database.execute(FORMAT_0)
        database.execute("INSERT INTO snapshots VALUES ('run/1', 'fold-1', 7, '0', x'', x'')")
        database.commit()
    with closing(SnapshotFile(path, writable=False)) as reader:
        assert reader.newest(key, None) is None
    saved = Snapshot(key=key, number=1, check=b"check", state=b"state")
    for _ in range(2):
        with closing(SnapshotFile(path)) as cache:
            cache.save(saved)
            assert cache.newest(key, None) == saved
    with closing(SnapshotFile(path)) as cache:
        assert cache.newest(key, None) == saved


def test_a_snapshot_file_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    """Something else at its place, or a full disk, keeps nothing from working; later it is used."""
    path = tmp_path / "snapshots.db"
    path.mkdir()
    key = SnapshotKey("stream", "run/1", "fold", "generation")
    snapshot = Snapshot(key=key, number=1, check=b"check", state=b"state")
    with closing(SnapshotFile(path)) as cache:
        cache.save(snapshot)
        assert cache.newest(key, None) is None
        path.rmdir()
        cache.save(snapshot)
        assert cache.newest(key, None) == snapshot
