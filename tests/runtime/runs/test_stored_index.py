"""The index of runs, read beside the process that keeps it or after it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from trio.testing import MockClock

from perdure.eventlog import MemoryStore
from perdure.runtime.kernel.completion import completed
from perdure.runtime.kernel.listing_overlay import Overlay, StoredListing
from perdure.runtime.runs.index import RUN_LISTING, RunIndex
from tests.runtime.runs.index_rows import rows
from tests.runtime.runs.test_index import ALL, DAMAGES, ids, run_index, spoil
from tests.runtime.world import world


def read_index(path: Path, store: MemoryStore) -> StoredListing:
    """Read an index beside the process that keeps it."""
    return StoredListing(RUN_LISTING, path, store)


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
        both = RunIndex(beside), RunIndex(complete)
        for record in store._records:
            for statuses in (None, frozenset({"running"}), frozenset({"succeeded", "failed"})):
                where = replace(ALL, statuses=statuses)
                listed = [completed(each.list(where, at=record.mark)) for each in both]
                assert listed[0] == listed[1]
        opened = [completed(each.open_runs()) for each in both]
        assert opened[0] == opened[1] != []
        assert isinstance(beside.tables, Overlay)  # the file was of use
        assert rows(beside.tables) == rows(complete.tables)
    assert path.read_bytes() == before
    assert not (tmp_path / "none.db").exists()


async def test_a_reader_sees_one_moment_while_the_file_goes_on(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    """What the keeper of the file writes later does not mix with what was laid over it."""
    store, path = MemoryStore(), tmp_path / "runs.db"
    await left_behind(store, path)
    with closing(read_index(path, store)) as beside:
        listed = completed(RunIndex(beside).list(ALL))
        before = rows(beside.tables)
        async with world(store) as w, run_index(w, path) as runs:
            await w.create("greet")
            await ids(runs)
        assert rows(beside.tables) == before
        assert completed(RunIndex(beside).list(ALL, at=listed[1])) == listed
        newer, at = completed(RunIndex(beside).list(ALL))  # whoever asks for now gets what is new
        assert len(newer) == len(listed[0]) + 1
        assert at == store.head()


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
        listed = [completed(RunIndex(each).list(ALL)) for each in (beside, complete)]
        assert listed[0] == listed[1]
        assert rows(beside.tables) == rows(complete.tables)
    assert path.read_bytes() == before
