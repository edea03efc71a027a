"""Live listings: asked by many at once, left alone by those who go, and never lost for long."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from itertools import takewhile
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.eventlog import MemoryStore, RealEnv, open_log
from perdure.eventlog.errors import DamagedRecord
from perdure.eventlog.record import Record
from perdure.eventlog.store import Bounds, StoredPage
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.listing import ListingFile
from perdure.runtime.kernel.live_listing import LiveListing
from perdure.runtime.kernel.projection import READERS
from perdure.runtime.runs.index import RUN_LISTING, RunIndex
from perdure.runtime.runs.run_filter import RunFilter
from tests.eventlog.conftest import SteadyEnv
from tests.runtime.runs.run_records import Happening, recorded, stored

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT count(*) FROM n"
WHERE = RunFilter(tenant="t")


def log_of(runs: int) -> list[Record]:
    """The records of runs that were created, nothing else."""
    columns = {"tenant": "t", "plugin_id": "p", "entry_id": "e"}
    return recorded([Happening(f"run-{number}", "queued", columns) for number in range(runs)])


@asynccontextmanager
async def listed(store: MemoryStore, path: Path | str = ":memory:") -> AsyncIterator[LiveListing]:
    """Keep a listing of runs, in real threads."""
    with closing(ListingFile(RUN_LISTING, path)) as tables:
        async with open_log(RealEnv(), store) as log, trio.open_nursery() as nursery:
            listing = LiveListing(log, tables)
            nursery.start_soon(listing.run)
            await listing.reach(await log.head())
            yield listing
            nursery.cancel_scope.cancel()


async def ids(listing: LiveListing) -> list[str]:
    """List all runs, oldest first."""
    found, _ = await RunIndex(listing).list(WHERE, limit=500)
    return [each.run_id for each in reversed(found)]


class Endless:
    """A query without an answer, which tells when it begins and how it ends."""

    def __init__(self) -> None:
        """Nothing is asked yet."""
        self.begun, self.ended = Event(), Event()
        self.error: sqlite3.Error | None = None

    def __call__(self, database: sqlite3.Connection, _: int | None) -> None:
        """Ask it."""
        self.begun.set()
        try:
            database.execute(ENDLESS).fetchone()
        except sqlite3.Error as error:
            self.error = error
            raise
        finally:
            self.ended.set()


async def test_a_query_is_interrupted_when_its_client_leaves(tmp_path: Path) -> None:
    """Its thread and its connection are free again: as many as there are may be given up (G1)."""
    async with listed(stored(log_of(3)), tmp_path / "runs.db") as listing:
        for _ in range(2 * READERS):
            endless = Endless()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listing.ask, endless)
                await trio.to_thread.run_sync(endless.begun.wait)
                nursery.cancel_scope.cancel()
            await trio.to_thread.run_sync(endless.ended.wait)
            assert "interrupted" in str(endless.error)
        assert await ids(listing) == ["run-0", "run-1", "run-2"]


async def test_a_query_is_interrupted_when_its_time_is_over(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    """It is answered with OVERLOADED, which says what to do (G1)."""
    async with listed(stored(log_of(3)), tmp_path / "runs.db") as listing:
        endless = Endless()
        with pytest.raises(OperationError, match="OVERLOADED: this took more than 10 s"):
            await listing.ask(endless)
        endless.ended.wait()
        assert "interrupted" in str(endless.error)


async def test_a_long_query_holds_up_no_other_and_no_writer(tmp_path: Path) -> None:
    """All but one connection are busy without end: lists are answered, and records taken in."""
    store, records = MemoryStore(), log_of(5)
    store.commit(records[:3])
    async with listed(store, tmp_path / "runs.db") as listing, trio.open_nursery() as nursery:
        endless = [Endless() for _ in range(READERS - 1)]
        for each in endless:
            nursery.start_soon(listing.ask, each)
            await trio.to_thread.run_sync(each.begun.wait)
        assert len(await ids(listing)) == 3
        upto = records[-1].mark
        listing.tables.take_in(records[3:], store.generation, upto)
        assert len(await ids(listing)) == 5
        assert not any(each.ended.is_set() for each in endless)
        nursery.cancel_scope.cancel()


# Records that cannot be read


async def test_a_record_that_cannot_be_read_is_passed_and_taken_in_when_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are listed; it is counted, and logged once, also over restarts (G6)."""
    store, path, records = MemoryStore(), tmp_path / "runs.db", log_of(4)
    store.commit([*records[:1], records[1]._replace(body=b"\xff"), *records[2:]])
    for _ in range(2):
        async with listed(store, path) as listing:
            assert await ids(listing) == ["run-0", "run-2", "run-3"]
            assert listing.tables.passed == 1
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "record 2 (run/run-1, run.created) cannot be read and is missing from the list of runs"
    ]
    store._records[1] = records[1]  # a newer release reads it
    async with listed(store, path) as listing:
        assert await ids(listing) == ["run-0", "run-1", "run-2", "run-3"]
        assert listing.tables.passed == 0


class Damaged(MemoryStore):
    """A store some of whose positions cannot be read."""

    damage: Sequence[int] = ()

    def read_all(self, after: int, bounds: Bounds) -> StoredPage:
        """End a page before a damaged record, and pass it if that is wanted."""
        while after + 1 in self.damage:
            after += 1
            if not bounds.pass_damage:
                raise DamagedRecord(f"record {after}", "it is missing", position=after)
        page = super().read_all(after, bounds)
        sound = list(takewhile(lambda each: each.position not in self.damage, page.records))
        return page._replace(records=sound, more=page.more or len(sound) < len(page.records))


@pytest.mark.parametrize(
    "damage", [[1], [7], [40, 41, 42, 44, 46], [3, 50, 51], range(20, 60), [99, 100]]
)
async def test_a_damaged_part_of_the_log_is_passed(
    tmp_path: Path, damage: Sequence[int], caplog: pytest.LogCaptureFixture
) -> None:
    """All runs outside of it are listed, and it is tried again at the next start (G6)."""
    store, path, records = Damaged(), tmp_path / "runs.db", log_of(100)
    store.commit(records)
    store.damage = damage
    holes = [position for position in damage if position - 1 not in damage]
    whole = [f"run-{record.position - 1}" for record in records]
    sound = [f"run-{record.position - 1}" for record in records if record.position not in damage]
    for _ in range(2):
        async with listed(store, path) as listing:
            assert await ids(listing) == sound
            assert listing.tables.passed == len(holes)
    assert f"the log is damaged after position {damage[0] - 1}" in caplog.text
    store.damage = ()
    async with listed(store, path) as listing:
        assert await ids(listing) == whole


async def test_a_record_whose_metadata_cannot_be_read_is_passed(tmp_path: Path) -> None:
    """What it is about is not known; the others are listed (G6)."""
    store, records = MemoryStore(), log_of(4)
    store.commit([*records[:2], records[2]._replace(meta=b"\xff"), records[3]])
    async with listed(store, tmp_path / "runs.db") as listing:
        assert await ids(listing) == ["run-0", "run-1", "run-3"]
        assert listing.tables.passed == 1


async def test_a_file_that_cannot_be_opened_yet_is_opened_later(
    env: SteadyEnv, autojump_clock: MockClock, tmp_path: Path, monkeypatch: Any
) -> None:
    """The node starts without it; until then a list is refused, and says why (G2)."""
    store, opened = stored(log_of(3)), ListingFile.open

    def full(_: ListingFile) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(ListingFile, "open", full)
    with closing(ListingFile(RUN_LISTING, tmp_path / "runs.db")) as tables:
        async with open_log(env, store) as log, trio.open_nursery() as nursery:
            listing = LiveListing(log, tables)
            nursery.start_soon(listing.run)
            with pytest.raises(OperationError, match=r"UNAVAILABLE.*cannot be opened now"):
                await ids(listing)
            monkeypatch.setattr(ListingFile, "open", opened)
            await listing.reach(await log.head())
            assert len(await ids(listing)) == 3
            assert not listing._stuck  # lists wait for what is new again
            nursery.cancel_scope.cancel()
