from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.commands import RequestCancel
from perdure.eventlog import Mark, MemoryStore
from perdure.eventlog.follow import FollowLimits
from perdure.runtime.kernel import live_listing
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.listing import ListingFile
from perdure.runtime.kernel.live_listing import LiveListing
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.runs.index import RUN_LISTING, RunIndex
from perdure.runtime.runs.run_filter import RunFilter
from tests.runtime.runs.index_rows import rows_in
from tests.runtime.world import World, world


@asynccontextmanager
async def run_index(w: World, path: Path | str = ":memory:") -> AsyncIterator[RunIndex]:
    """Keep an index over the log of a world."""
    with closing(ListingFile(RUN_LISTING, path)) as tables:
        async with trio.open_nursery() as nursery:
            listing = LiveListing(w.executor.context.log, tables)
            nursery.start_soon(listing.run)
            yield RunIndex(listing)
            nursery.cancel_scope.cancel()


ALL = RunFilter(tenant=LOCAL.tenant)


def listing_of(index: RunIndex) -> LiveListing:
    """Give the live listing under an index."""
    assert isinstance(index._listing, LiveListing)
    return index._listing


def created_upto(w: World, run_ids: Iterable[str], at: Mark) -> set[str]:
    """Give those runs that existed at a place."""
    return {run_id for run_id in run_ids if w.created_at(run_id) <= at.position}


async def ids(index: RunIndex, at: Mark | None = None, **where: object) -> list[str]:
    """List the ids of runs."""
    statuses = where.pop("statuses", None)
    wanted = replace(
        ALL,
        statuses=None if statuses is None else frozenset(statuses),  # type: ignore[call-overload]
        **where,  # type: ignore[arg-type]
    )
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
        _, mark = await runs.list(ALL)
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
            page, _ = await runs.list(ALL, before=before, limit=3)
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
    kept, fresh = rows_in(path), rows_in(tmp_path / "fresh.db")
    assert kept == fresh
    assert len(kept) > 40


DAMAGES = {
    "other log": "UPDATE place SET generation = 'ffffffffffffffff'",
    "other event": "UPDATE place SET event_id = x'00000000'",
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


# A disk that is full, a file that is damaged


def room(tables: ListingFile, pages: int) -> None:
    """Say how many pages the file of a listing may have."""
    with tables._lock:
        tables._opened().execute(f"PRAGMA max_page_count = {pages}")


async def test_on_a_full_disk_lists_answer_from_the_place_that_was_reached(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They say so by their cursor, nothing is thrown away, and it is logged once (G2)."""
    async with world() as w, run_index(w, tmp_path / "runs.db") as runs:
        first = await w.create("greet")
        await w.end(first)
        _, then = await runs.list(ALL)
        tables = listing_of(runs).tables
        room(tables, 1)  # no more than it has
        more = [await w.create("greet") for _ in range(200)]
        for run_id in more:
            await w.end(run_id)
        await trio.sleep(10)
        with trio.fail_after(1):  # nobody waits for room
            found, at = await runs.list(ALL)
            _, counted_at = await runs.count(ALL)
        assert found
        assert {listed.run_id for listed in found} == created_upto(w, [first, *more], at)
        assert then <= at == counted_at
        head = await w.executor.context.log.head()
        with trio.fail_after(1), pytest.raises(OperationError, match="UNAVAILABLE") as refused:
            await runs.list(ALL, at=head)  # it does not pretend, either
        assert refused.value.details == {"position": at.position, "head": head.position}
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "cannot be written now" in caplog.text
        room(tables, 1 << 20)
        await listing_of(runs).reach(head)
        assert len((await runs.list(ALL, limit=500))[0]) == 201


async def test_a_disk_that_fills_up_while_a_list_waits_answers_it(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the tables to come to the head, and not for room."""
    async with world() as w, run_index(w) as runs:
        _, then = await runs.list(ALL)

        def full(*_: Any) -> None:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

        monkeypatch.setattr(ListingFile, "take_in", full)
        await w.create("greet")
        with trio.fail_after(1):
            assert await runs.list(ALL) == ([], then)


async def test_a_list_that_is_being_built_answers_from_where_it_is(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some seconds, however long the log is; how far it has come can be asked (G10)."""
    store = MemoryStore()
    async with world(store) as w:
        created = [await w.create("greet") for _ in range(5)]
        for run_id in created:
            await w.end(run_id)

    async def slowly(self: LiveListing, work: Any, *args: Any) -> Any:
        if work.__name__ == "take_in":
            await trio.sleep(100)
        return work(*args)

    monkeypatch.setattr(LiveListing, "_in_writer", slowly)
    monkeypatch.setattr(live_listing, "EVERY_COMMIT", FollowLimits(records=10, heartbeat=0))
    async with world(store) as w, run_index(w) as runs:
        listing = listing_of(runs)
        for _ in range(3):
            with trio.fail_after(4):
                found, at = await runs.list(ALL, limit=500)
            assert {listed.run_id for listed in found} == created_upto(w, created, at)
            assert listing.progress == (at.position, (await w.executor.context.log.head()).position)
            await trio.sleep(110)
        await listing.reach(await w.executor.context.log.head())
        assert await ids(runs) == created[::-1]


async def test_a_damaged_list_that_cannot_be_rebuilt_now_is_rebuilt_later(
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
            with listing_of(runs).tables.writing() as database:
                database.execute("DROP TABLE past")
            second = await w.create("greet")
            await w.end(second)
            await trio.sleep(10)
            with trio.fail_after(1), pytest.raises(OperationError, match="UNAVAILABLE"):
                await ids(runs)
            assert len(caplog.records) == 2  # damaged, and cannot be written
        await listing_of(runs).reach(await w.executor.context.log.head())
        assert await ids(runs) == [second, first]
        assert await runs.statuses() == {"succeeded": 2}


async def test_a_question_that_finds_damage_has_the_list_rebuilt(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing need be written: that question is refused, and the next list is whole (G6)."""
    store, path = MemoryStore(), tmp_path / "runs.db"
    async with world(store) as w, run_index(w, path) as runs:
        made = [await w.create("greet") for _ in range(200)]
        for run_id in made:
            await w.end(run_id)
        await ids(runs)
    tear(path)
    async with world(store) as w, run_index(w, path) as runs:
        with pytest.raises(OperationError, match="UNAVAILABLE"):
            await runs.list(replace(ALL, plugin_id="test"), limit=500)
        found, _ = await runs.list(replace(ALL, plugin_id="test"), limit=500)
        assert {listed.run_id for listed in found} == set(made)
    assert "damaged; it is built anew" in caplog.text


def tear(path: Path) -> None:
    """Damage the pages of all indexes in a file, and leave the rest."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = database.execute("PRAGMA page_size").fetchone()[0]
        found = "SELECT rootpage FROM sqlite_master WHERE type = 'index' AND tbl_name = 'runs'"
        pages = [page for (page,) in database.execute(found)]
    content = bytearray(path.read_bytes())
    for page in pages:
        content[(page - 1) * size : page * size] = b"\xff" * size
    path.write_bytes(content)


async def test_open_runs_are_what_a_host_takes_up(autojump_clock: MockClock) -> None:
    """Queued, running and canceling ones, oldest first; nothing that has ended."""
    async with world() as w, run_index(w) as runs:
        napping = [await w.create("nap", seconds=50) for _ in range(5)]
        await w.end(napping[0])
        opened = [listed.run_id for listed in await runs.open_runs()]
        assert await runs.open_runs(1 << 40) == []
        assert opened == [run_id for run_id in napping if run_id in opened]
        assert napping[0] not in opened
