from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from trio.testing import MockClock

from perdure.eventlog import EventRegistry, MemoryStore, RealEnv, SqliteStore, open_log, verify
from perdure.eventlog.record import Record
from perdure.eventlog.testing import example_log, example_record
from perdure.eventlog.verify import MAX_PROBLEMS
from tests.eventlog.conftest import SteadyEnv


class Damaged(MemoryStore):
    """A store that takes whatever it is given."""

    def __init__(self, records: list[Record]) -> None:
        """Hold these records."""
        super().__init__()
        self._records = records


async def problems_of(records: list[Record]) -> list[str]:
    """Verify a store that holds these records."""
    async with open_log(SteadyEnv(), Damaged(records)) as log:
        return (await verify(log)).problems


async def test_a_sound_log_has_no_problems(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """Verification counts what it read and finds nothing."""
    store.commit([*example_log(streams=7, length=300), example_record(2101, "end", seal=True)])
    counts: list[int] = []
    async with open_log(env, store) as log:
        report = await verify(log, progress=counts.append)
    assert report.sound
    assert (report.records, report.streams) == (2101, 8)
    assert counts == [1000, 2000, 2101]


R = example_record
DAMAGE = {
    "version 3 follows 1": lambda: [R(1), R(2, version=3)],
    "begins with version 2": lambda: [R(1, version=2)],
    "lies before version 1": lambda: [R(1, version=2), R(2, version=1)],
    "follows the seal": lambda: [R(1, seal=True), R(2, version=2)],
    "changes the scope": lambda: [R(1), R(2, version=2, scope="other")],
    "committed before the one before it": lambda: [
        R(1, commit_time=5),
        R(2, version=2, commit_time=4),
    ],
    "record 1: not CBOR": lambda: [R(1)._replace(body=b"\xff")],
    "semantic tag": lambda: [R(1)._replace(meta=b"\xc0\x60")],
    "occurs 2 times": lambda: [R(n, version=n)._replace(event_id=bytes(16)) for n in (1, 2)],
    "record 3 follows 1: some are missing": lambda: [R(1), R(3, version=2)],
    "metadata is a map": lambda: [R(1)._replace(meta=b"\x80")],
    "an event id of 3 bytes": lambda: [R(1)._replace(event_id=b"abc")],
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_is_found(autojump_clock: MockClock, damage: str) -> None:
    """Each broken promise is named."""
    assert any(damage in problem for problem in await problems_of(DAMAGE[damage]()))


async def test_problems_are_counted_but_not_all_kept(autojump_clock: MockClock) -> None:
    """A badly damaged log gives a short report."""
    records = [R(n, version=n)._replace(body=b"\xff") for n in range(1, 500)]
    async with open_log(SteadyEnv(), Damaged(records)) as log:
        report = await verify(log)
    assert report.problem_count == 499
    assert len(report.problems) == MAX_PROBLEMS


async def test_events_that_the_registry_cannot_read_are_problems(
    autojump_clock: MockClock, env: SteadyEnv, store: MemoryStore
) -> None:
    """With a registry, every record must be an event that this release knows."""

    @dataclass(frozen=True)
    class Other:
        event_name: ClassVar[str] = "test.other"

    registry = EventRegistry()
    registry.register(Other)
    store.commit([R(1)])
    async with open_log(env, store) as log:
        report = await verify(log, registry=registry)
    assert "not known to this release" in report.problems[0]


@pytest.mark.parametrize("structure", ["events_by_scope", "sqlite_autoindex_events_1"])
async def test_a_damaged_file_is_found(tmp_path: Path, structure: str) -> None:
    """Verification looks at the database's own structure too."""
    path = tmp_path / "log.db"
    store = SqliteStore.open(path, env=RealEnv())
    store.commit(example_log(streams=3, length=300))
    store.close()
    database = sqlite3.connect(path)
    ((root,),) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (structure,))
    database.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xff" * 4096)
    damaged = SqliteStore.open_reader(path)
    async with open_log(RealEnv(), damaged) as log:
        assert not (await verify(log)).sound
    damaged.close()
