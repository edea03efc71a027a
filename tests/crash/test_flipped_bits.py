"""Bits of a log's file are flipped, one at a time: whatever changes is noticed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from perdure.eventlog import RealEnv, SqliteStore, verify
from perdure.eventlog.errors import EventLogError
from perdure.eventlog.record import Record
from perdure.eventlog.snapshots import MemorySnapshots
from perdure.eventlog.store import Bounds
from perdure.eventlog.testing import EXAMPLE_TIME, example_record
from perdure.runtime.kernel.completion import completed
from perdure.runtime.kernel.log_reader import ReadableLog

STREAMS = 16
T = TypeVar("T")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a small log: scopes, seals, long and short bodies, several pages of each tree."""
    path = tmp_path_factory.mktemp("original") / "log.db"
    with closing(SqliteStore.open(path, env=RealEnv())) as store:
        for number in range(1, 161):
            stream, version = f"run/{number % STREAMS}", 1 + (number - 1) // STREAMS
            scope = "session/1" if number % 2 else None
            size = 9_000 if number % 40 == 0 else number
            ends = version == 10
            store.commit(
                [example_record(number, stream, version, scope=scope, seal=ends, size=size)]
            )
        store.complete()
    return path.read_bytes()


def by_position(store: SqliteStore) -> list[Record]:
    """Read a log from its start to its end."""
    records, more = list[Record](), True
    while more:
        page = store.read_all(records[-1].position if records else 0, Bounds())
        records += page.records
        more = page.more
    return records


def by_index(store: SqliteStore) -> list[object]:
    """Read everything that an index leads to: streams, scopes, cursors and instants."""
    streams = [store.read_stream(f"run/{n}", 0, Bounds()).records for n in range(STREAMS)]
    bounded = store.read_stream("run/3", 0, Bounds(upto=90)).records
    scope = store.read_scope("session/1", 0, Bounds()).records
    places = [(store.mark_at(p), store.mark_before(p + EXAMPLE_TIME)) for p in range(1, 161)]
    states = [store.stream_state(f"run/{n}") for n in range(STREAMS)]
    return [store.generation, streams, bounded, scope, places, states]


def read(store: SqliteStore, way: Callable[[SqliteStore], T]) -> T | None:
    """Read a log in one way; None if that is an error of the log's."""
    with suppress(EventLogError):
        return way(store)
    return None


def is_sound(store: SqliteStore) -> bool:
    """Tell whether verification finds nothing."""
    return completed(verify(ReadableLog(store, MemorySnapshots()))).sound


def flipped(original: bytes, chance: random.Random, times: int) -> Iterator[tuple[int, bytes]]:
    """Give copies of a file with one other bit each, and which."""
    for _ in range(times):
        bit = chance.randrange(8 * len(original))
        copy = bytearray(original)
        copy[bit // 8] ^= 1 << bit % 8
        yield bit, bytes(copy)


@pytest.mark.parametrize("times", [500, pytest.param(10_000, marks=pytest.mark.soak)])
def test_every_flipped_bit_that_changes_what_is_read_is_noticed(
    original: bytes, tmp_path: Path, times: int
) -> None:
    """Reading gives what was written or an error, and then verification says so too."""
    path = tmp_path / "log.db"
    path.write_bytes(original)
    with closing(SqliteStore.open_reader(path)) as store:
        records, indexed = by_position(store), by_index(store)
        assert is_sound(store)
    changed = 0
    for bit, content in flipped(original, random.Random(times), times):
        path.write_bytes(content)
        try:
            store = SqliteStore.open_reader(path)
        except EventLogError:
            changed += 1
            continue  # nobody can overlook that
        with closing(store):
            found = read(store, by_position)
            assert found in (None, records), f"bit {bit} is read as another record"
            if found is None or read(store, by_index) != indexed:
                changed += 1
                assert not is_sound(store), f"bit {bit} passes verification"
    assert changed > times // 4
