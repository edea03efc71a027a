"""Lists of runs as clients ask for them, while the tables behind them are in trouble."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.events import Activated
from perdure.actors.run.stream import stream_of
from perdure.eventlog import MemoryStore
from perdure.eventlog.errors import StoreDamaged
from perdure.eventlog.record import Mark
from perdure.eventlog.store import Bounds, StoredPage
from perdure.runtime.kernel.listing import ListingFile
from perdure.runtime.kernel.live_listing import LiveListing
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.runs.requests import ListRuns
from tests.runtime.service import events, service


@pytest.fixture
def fill_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let no listing be written from now on."""

    def full(*_: Any, **__: Any) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    return lambda: monkeypatch.setattr(ListingFile, "take_in", full)


async def test_every_way_to_list_answers_while_no_listing_can_be_written(
    autojump_clock: MockClock, fill_disk: Callable[[], None]
) -> None:
    """From the place that was reached; a follower goes on from there and misses nothing (G2)."""
    async with service() as s:
        first = (await s.start("nap", args={"seconds": 1000}))["run_id"]
        await trio.sleep(1)
        reached = (await s.list(LOCAL, ListRuns()))["cursor"]
        fill_disk()
        second = (await s.start("nap", args={"seconds": 1000}))["run_id"]
        await trio.sleep(10)
        with trio.fail_after(1):
            page = await s.list(LOCAL, ListRuns())
            counted = await s.call("runs.cancel_many", {})
            figures = await s.node.parts["runs"].figures()
            follower = await s.follow("runs")
            seen = await events(follower)
        assert [run["run_id"] for run in page["runs"]] == [first]
        assert page["cursor"] == counted["cursor"] == reached
        assert counted["count"] == 1
        assert next(each for each in figures if each.name == "runs").values
        assert [event["run_id"] for event in seen] == [first, second, second]
        assert [event["status"] for event in seen] == ["running", "queued", "running"]


async def test_a_node_is_open_while_its_index_is_built_and_takes_up_every_run(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New runs are executed at once, those of before when the index knows them (G10)."""
    store = MemoryStore()
    async with service(store) as s:
        old = [(await s.start("nap", args={"seconds": 50}))["run_id"] for _ in range(3)]
        await trio.sleep(1)
    in_writer = LiveListing._in_writer

    async def slowly(self: LiveListing, work: Any, *args: Any) -> Any:
        await trio.sleep(20)
        return await in_writer(self, work, *args)

    monkeypatch.setattr(LiveListing, "_in_writer", slowly)
    begun = trio.current_time()
    async with service(store) as s:
        assert trio.current_time() - begun < 10
        new = await s.finished((await s.start("greet"))["run_id"])
        assert new["status"] == "succeeded"
        assert (await s.read(old[0]))["status"] == "running"
        reached, head = s.node.listings["runs"].progress
        assert reached < head
        for run_id in old:
            assert (await s.finished(run_id))["status"] == "succeeded"
    epochs = [len(s.world.events(run_id, Activated)) for run_id in [*old, new["run_id"]]]
    assert epochs == [2, 2, 2, 1]  # nobody was taken up who had a host already


class Damaged(MemoryStore):
    """A store in which the records of some runs cannot be read."""

    streams: Sequence[str] = ()
    positions: Sequence[int] = ()

    def read_stream(self, stream: str, after_version: int, bounds: Bounds) -> StoredPage:
        """Fail where the records are."""
        if stream in self.streams:
            raise StoreDamaged("log.db", "database disk image is malformed")
        return super().read_stream(stream, after_version, bounds)

    def mark_at(self, position: int) -> Mark | None:
        """Fail where the record is."""
        if position in self.positions:
            raise StoreDamaged("log.db", "database disk image is malformed")
        return super().mark_at(position)


async def test_one_damaged_run_hurts_no_list(autojump_clock: MockClock) -> None:
    """The others are listed and it is named, on every page, wherever a page ends (G6)."""
    store = Damaged()
    async with service(store) as s:
        made = [(await s.start("greet"))["run_id"] for _ in range(6)]
        for run_id in made:
            await s.world.end(run_id)
    async with service(store) as s:
        store.streams = [stream_of(run_id) for run_id in made[2:4]]
        store.positions = [
            record.position
            for record in store._records
            if record.version == 1 and record.stream in store.streams
        ]
        for limit in (3, 4, 6, 50):
            found, unreadable, after = list[str](), list[str](), None
            while True:
                page = await s.list(LOCAL, ListRuns(limit=limit, after=after))
                found += [run["run_id"] for run in page["runs"]]
                unreadable += page.get("unreadable", [])
                after = page["next_after"]
                if after is None:
                    break
            assert found == [made[5], made[4], made[1], made[0]]
            assert unreadable == [made[3], made[2]]
