from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.commands import RequestCancel
from perdure.eventlog import Mark, MemoryStore
from perdure.runtime.kernel.listing import ListingFile
from perdure.runtime.kernel.listing_overlay import Overlay, read_listing
from perdure.runtime.kernel.live_listing import LiveListing
from perdure.runtime.kernel.projection import Projection
from perdure.runtime.runs.index import RUN_LISTING, RunFilter, RunIndex, RunTables
from tests.runtime.runs.index_rows import rows
from tests.runtime.world import World, world


@asynccontextmanager
async def run_index(w: World, path: Path | str = ":memory:") -> AsyncIterator[RunIndex]:
    """Keep an index over the log of a world."""
    with closing(ListingFile(RUN_LISTING, path)) as tables:
        async with trio.open_nursery() as nursery:
            listing = LiveListing(w.executor.context.log, tables)
            await nursery.start(listing.run)
            yield RunIndex(listing)
            nursery.cancel_scope.cancel()


def read_index(path: Path, store: MemoryStore) -> Projection:
    """Read an index beside the process that keeps it."""
    return read_listing(RUN_LISTING, path, store)


async def ids(index: RunIndex, at: Mark | None = None, **where: object) -> list[str]:
    """List the ids of runs."""
    statuses = where.pop("statuses", None)
    wanted = RunFilter(statuses=None if statuses is None else frozenset(statuses), **where)  # type: ignore[arg-type,call-overload]
    found, _ = await index.list(wanted, at=at)
    return [listed.run_id for listed in found]


async def test_runs_are_listed_newest_first(autojump_clock: MockClock) -> None:
    """Filters are combined with and; each answer says where in the log it is true (R82)."""
    async with world() as w, run_index(w) as runs:
        first = await w.create("greet")
        second = await w.create("nap", seconds=100)
        third = await w.create("fail")
        for run_id in (first, third):
            await w.end(run_id)
        assert await ids(runs) == [third, second, first]
        assert await ids(runs, entry_id="nap") == [second]
        assert await ids(runs, statuses=["succeeded", "failed"]) == [third, first]
        assert await ids(runs, statuses=["running"], entry_id="nap") == [second]
        assert await ids(runs, plugin_id="other") == []
        assert await ids(runs, plugin_id="test", statuses=["failed"]) == [third]
        assert await ids(runs, root_run_id=first) == [first]
        _, mark = await runs.list(RunFilter())
        assert mark == await w.executor.context.log.head()


async def test_a_list_is_never_behind_the_question(autojump_clock: MockClock) -> None:
    """Whatever was answered before the question is in the list."""
    async with world() as w, run_index(w) as runs:
        for _ in range(20):
            run_id = await w.create("nap", seconds=1000)
            assert run_id in await ids(runs)
            await w.executor.ask(run_id, RequestCancel(by="b", at=1))
            assert run_id not in await ids(runs, statuses=["queued", "running"])


async def test_pages_go_on_from_a_position(autojump_clock: MockClock) -> None:
    """Each run comes once, also when new ones arrive meanwhile."""
    async with world() as w, run_index(w) as runs:
        created = [await w.create("greet") for _ in range(7)]
        seen: list[str] = []
        before = None
        while True:
            page, _ = await runs.list(RunFilter(), before=before, limit=3)
            if not page:
                break
            seen.extend(listed.run_id for listed in page)
            before = page[-1].position
            await w.create("greet")
        assert seen == created[::-1]


async def test_a_list_of_the_past_is_as_it_was_then(autojump_clock: MockClock) -> None:
    """At an earlier place the statuses of that time count, and later runs are not there."""
    async with world() as w, run_index(w) as runs:
        first = await w.create("nap", seconds=10)
        await trio.sleep(1)
        then = await w.executor.context.log.head()
        await w.end(first)
        second = await w.create("greet")
        await w.end(second)
        assert await ids(runs, at=then) == [first]
        assert await ids(runs, at=then, statuses=["running"]) == [first]
        assert await ids(runs, at=then, statuses=["succeeded"]) == []
        assert await ids(runs, statuses=["succeeded"]) == [second, first]


async def test_a_restarted_catalogue_goes_on_and_a_rebuilt_one_is_the_same(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    """Taken in piece by piece or all at once, through any number of starts, the rows are equal."""
    store = MemoryStore()
    path = tmp_path / "runs.db"
    for _ in range(4):
        async with world(store) as w, run_index(w, path):
            for entry in ("greet", "fail", "nap"):
                args = {"seconds": 3} if entry == "nap" else {}
                await w.end(await w.create(entry, **args))
    async with world(store) as w, run_index(w, tmp_path / "fresh.db") as runs:
        await ids(runs)
    kept, fresh = ListingFile(RUN_LISTING, path), ListingFile(RUN_LISTING, tmp_path / "fresh.db")
    assert rows(kept) == rows(fresh)
    assert len(rows(kept)) > 40
    kept.close()
    fresh.close()


DAMAGES = {
    "other log": "UPDATE place SET generation = 'ffffffffffffffff'",
    "other event": "UPDATE place SET event_check = x'00000000'",
    "other format": "PRAGMA user_version = 99",
}


def spoil(path: Path, damage: str) -> None:
    """Make a directory that does not fit its log, and that is wrong."""
    if damage == "rubbish":
        path.write_bytes(b"rubbish" * 1000)
        for part in ("-wal", "-shm"):
            path.with_name(path.name + part).unlink(missing_ok=True)
        return
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("UPDATE runs SET plugin_id = 'wrong'")
    database.execute(DAMAGES[damage])
    database.close()


@pytest.mark.parametrize("damage", ["rubbish", *DAMAGES])
async def test_a_directory_that_does_not_fit_is_rebuilt(
    autojump_clock: MockClock, tmp_path: Path, damage: str
) -> None:
    """A restored log, a changed one, a damaged file: it starts anew and is right."""
    store, path = MemoryStore(), tmp_path / "runs.db"
    async with world(store) as w, run_index(w, path) as runs:
        run_id = await w.create("greet")
        await w.end(run_id)
        await ids(runs)
    spoil(path, damage)
    async with world(store) as w, run_index(w, path) as runs:
        assert await ids(runs, plugin_id="test") == [run_id]


# A disk that is full


def room(tables: ListingFile, pages: int) -> None:
    """Say how many pages the file of a listing may have."""
    with tables.reading() as database:
        database.execute(f"PRAGMA max_page_count = {pages}")


async def test_lists_wait_for_room_on_a_full_disk(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Runs go on, the past is listed, nothing is thrown away, and it is said once."""
    with closing(ListingFile(RUN_LISTING, tmp_path / "runs.db")) as tables:
        async with world() as w, trio.open_nursery() as nursery:
            listing = LiveListing(w.executor.context.log, tables)
            await nursery.start(listing.run)
            runs = RunIndex(listing)
            first = await w.create("greet")
            await w.end(first)
            _, then = await runs.list(RunFilter())
            room(tables, 1)  # no more than it has
            more = [await w.create("greet") for _ in range(200)]
            for run_id in more:
                await w.end(run_id)
            with trio.move_on_after(100) as waited:
                await ids(runs)
            assert waited.cancelled_caught
            assert await ids(runs, at=then) == [first]
            assert [record.levelname for record in caplog.records] == ["ERROR"]
            assert "cannot be written now" in caplog.text
            room(tables, 1 << 20)
            assert len((await runs.list(RunFilter(), limit=500))[0]) == 201
            nursery.cancel_scope.cancel()


async def test_a_directory_that_cannot_be_rebuilt_now_is_rebuilt_later(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Damaged on a full disk: the node goes on, and lists are whole when there is room."""
    connect = sqlite3.connect

    def cramped(*args: Any, **more: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = connect(*args, **more)
        database.execute("PRAGMA max_page_count = 1")
        return database

    async with world() as w, run_index(w) as runs:
        first = await w.create("greet")
        await w.end(first)
        assert await ids(runs) == [first]
        with monkeypatch.context() as full:
            full.setattr(sqlite3, "connect", cramped)
            with runs._listing.tables.reading() as database:
                database.execute("DROP TABLE intervals")
            second = await w.create("greet")
            await w.end(second)
            with trio.move_on_after(100) as waited:
                await ids(runs)
            assert waited.cancelled_caught
            assert await runs.statuses() == {}
            assert len(caplog.records) == 2  # damaged, and cannot be written
        assert await ids(runs) == [second, first]
        assert await runs.statuses() == {"succeeded": 2}


# Beside a server, or after it


async def left_behind(store: MemoryStore, path: Path) -> None:
    """Leave a directory behind that lacks the last part of its log."""
    async with world(store) as w:
        async with run_index(w, path) as runs:
            open_runs = [await w.create("nap", seconds=seconds) for seconds in (5, 50, 5000)]
            await w.end(await w.create("greet"))
            assert len(await ids(runs)) == 4
        await w.end(await w.create("fail"))
        for run_id in open_runs[:2]:
            await w.end(run_id)


async def test_a_reader_takes_the_missing_tail_from_the_log(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    """At every place in the log it lists what a complete directory lists, and writes nothing."""
    store, path = MemoryStore(), tmp_path / "runs.db"
    await left_behind(store, path)
    before = path.read_bytes()
    with (
        closing(read_index(path, store)) as beside,
        closing(read_index(tmp_path / "none.db", store)) as complete,
    ):
        assert isinstance(beside, Overlay)  # the file was of use
        assert rows(beside) == rows(complete)
        for position in range(1, store.head().position + 1):
            for statuses in (None, frozenset({"running"}), frozenset({"succeeded", "failed"})):
                listed = [
                    RunTables(each).runs(
                        RunFilter(statuses=statuses), before=None, at=position, limit=9
                    )
                    for each in (beside, complete)
                ]
                assert listed[0] == listed[1]
        assert RunTables(beside).open_runs(0) == RunTables(complete).open_runs(0) != []
    assert path.read_bytes() == before
    assert not (tmp_path / "none.db").exists()


async def test_a_reader_sees_one_moment_while_the_file_goes_on(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    """What the keeper of the file writes later does not mix with what was laid over it."""
    store, path = MemoryStore(), tmp_path / "runs.db"
    await left_behind(store, path)
    with closing(read_index(path, store)) as beside:
        before = rows(beside)
        async with world(store) as w, run_index(w, path) as runs:
            await ids(runs)
        assert rows(beside) == before


async def test_a_reader_can_only_be_asked(autojump_clock: MockClock, tmp_path: Path) -> None:
    """Nothing that it has would write the file or throw it away."""
    store, path = MemoryStore(), tmp_path / "runs.db"
    await left_behind(store, path)
    with closing(read_index(path, store)) as beside:
        for change in ("take_in", "start_anew", "rebuild"):
            assert hasattr(ListingFile, change)
            assert not hasattr(beside, change)


@pytest.mark.parametrize("damage", ["rubbish", *DAMAGES])
async def test_a_reader_passes_a_file_over_that_does_not_fit(
    autojump_clock: MockClock, tmp_path: Path, damage: str
) -> None:
    """It folds the log from its beginning and leaves the file to whoever keeps it."""
    store, path = MemoryStore(), tmp_path / "runs.db"
    await left_behind(store, path)
    spoil(path, damage)
    before = path.read_bytes()
    with (
        closing(read_index(path, store)) as beside,
        closing(read_index(tmp_path / "none.db", store)) as complete,
    ):
        assert rows(beside) == rows(complete)
    assert path.read_bytes() == before


async def test_open_runs_are_what_a_host_takes_up(autojump_clock: MockClock) -> None:
    """Queued, running and canceling ones, oldest first; nothing that has ended."""
    async with world() as w, run_index(w) as runs:
        napping = [await w.create("nap", seconds=50) for _ in range(5)]
        await w.end(napping[0])
        opened = [listed.run_id for listed in await runs.open_runs()]
        assert await runs.open_runs(1 << 40) == []
        assert opened == [run_id for run_id in napping if run_id in opened]
        assert napping[0] not in opened
