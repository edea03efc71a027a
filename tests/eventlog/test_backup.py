from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from perdure.eventlog import (
    Append,
    EventLog,
    InvalidCursor,
    LogUnsupported,
    RealEnv,
    SqliteStore,
    StreamWrite,
    back_up,
    open_log,
    restore,
    verify,
)
from perdure.eventlog.simulation import SimEnv
from perdure.eventlog.sqlite.store import BACKUP
from perdure.eventlog.store import Bounds
from perdure.eventlog.testing import example_event, example_log


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A log of 2,500 records on disk: three pages."""
    store = SqliteStore.open(tmp_path / "log.db", env=RealEnv())
    store.commit(example_log(streams=5, length=500))
    yield store
    store.close()


async def test_a_backup_restores_to_the_same_records(store: SqliteStore, tmp_path: Path) -> None:
    """Every record comes back unchanged, at its own position, in a sound log."""
    env, steps = RealEnv(), []
    async with open_log(env, store) as log:
        position = await back_up(
            log, tmp_path / "backup.db", progress=lambda done, total: steps.append((done, total))
        )
    assert position == 2500
    assert steps[-1] == (2500, 2500)
    restored = restore(tmp_path / "backup.db", tmp_path / "restored.db", env=env)
    for after in (0, 1000, 2000):
        assert restored.read_all(after, Bounds()).records == store.read_all(after, Bounds()).records
    async with open_log(env, restored) as log:
        assert (await verify(log)).sound
    restored.close()


async def test_a_restored_log_is_another_log(store: SqliteStore, tmp_path: Path) -> None:
    """A cursor from before the restore is refused, however well its position fits."""
    env = RealEnv()
    async with open_log(env, store) as log:
        await back_up(log, tmp_path / "backup.db")
        cursor = log.cursor(await log.head())
    restored = restore(tmp_path / "backup.db", tmp_path / "restored.db", env=env)
    async with open_log(env, restored) as log:
        with pytest.raises(InvalidCursor, match="before a restore"):
            await log.follow(cursor)
    restored.close()


async def test_a_backup_under_load_is_a_prefix(store: SqliteStore, tmp_path: Path) -> None:
    """Appends go on during a backup; it holds the log up to where it began, and no half append."""
    env = RealEnv()

    async def keep_writing(log: EventLog) -> None:
        for number in range(10_000):
            pair = [example_event(), example_event()]
            await log.append(Append([StreamWrite(f"load/{number}", 0, pair)]))

    async with open_log(env, store) as log, trio.open_nursery() as nursery:
        nursery.start_soon(keep_writing, log)
        await trio.sleep(0.05)
        position = await back_up(log, tmp_path / "backup.db")
        nursery.cancel_scope.cancel()
    backup = SqliteStore.open_reader(tmp_path / "backup.db", kind=BACKUP)
    assert backup.head().position == position
    async with open_log(env, backup) as log:
        assert (await verify(log)).sound
    assert backup.head() == store.mark_at(position)
    backup.close()


async def test_nothing_is_overwritten(store: SqliteStore, tmp_path: Path) -> None:
    """Neither a backup nor a restore touches a file that exists."""
    (tmp_path / "precious").write_text("precious")
    async with open_log(RealEnv(), store) as log:
        with pytest.raises(LogUnsupported, match="never overwritten"):
            await back_up(log, tmp_path / "precious")
        await back_up(log, tmp_path / "backup.db")
    with pytest.raises(LogUnsupported, match="never overwritten"):
        restore(tmp_path / "backup.db", tmp_path / "precious", env=RealEnv())
    with pytest.raises(LogUnsupported, match="is a log, not a backup"):
        restore(store.path, tmp_path / "new.db", env=RealEnv())
    assert (tmp_path / "precious").read_text() == "precious"


async def test_a_cancelled_backup_leaves_nothing_behind(store: SqliteStore, tmp_path: Path) -> None:
    """Half a backup is no backup."""
    async with open_log(RealEnv(), store) as log:
        with trio.CancelScope() as scope:
            await back_up(log, tmp_path / "backup.db", progress=lambda _done, _all: scope.cancel())
    assert scope.cancelled_caught
    assert not list(tmp_path.glob("backup.db*"))


async def test_what_an_interrupted_backup_left_does_not_matter(
    store: SqliteStore, tmp_path: Path
) -> None:
    """A draft of a process that was killed is thrown away."""
    (tmp_path / "backup.db.part").write_text("half a page")
    async with open_log(RealEnv(), store) as log:
        await back_up(log, tmp_path / "backup.db")
    assert sorted(p.name for p in tmp_path.glob("backup.db*")) == ["backup.db"]


def test_generations_differ(tmp_path: Path) -> None:
    """Two worlds of different chance name their logs differently, one of the same alike."""

    async def name_of(number: int, seed: int) -> str:
        env = SimEnv(random.Random(seed))
        store = SqliteStore.open(tmp_path / f"{number}.db", env=env)
        store.close()
        return store.generation

    async def main() -> list[str]:
        return [await name_of(0, 1), await name_of(1, 1), await name_of(2, 2)]

    first, same, other = trio.run(main)
    assert first == same != other


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
async def test_parts_of_another_log_are_not_mixed_in(
    store: SqliteStore, tmp_path: Path, suffix: str
) -> None:
    """What a killed process left beside the name would be replayed over the restored log."""
    async with open_log(RealEnv(), store) as log:
        await back_up(log, tmp_path / "backup.db")
    (tmp_path / f"restored.db{suffix}").write_bytes(b"left over")
    with pytest.raises(LogUnsupported, match=f"restored.db{suffix} exists already"):
        restore(tmp_path / "backup.db", tmp_path / "restored.db", env=RealEnv())
    assert not (tmp_path / "restored.db").exists()


async def test_a_backup_is_restored_without_being_touched(
    store: SqliteStore, tmp_path: Path
) -> None:
    """A backup on read-only media is good enough."""
    vault = tmp_path / "vault"
    vault.mkdir()
    async with open_log(RealEnv(), store) as log:
        await back_up(log, vault / "backup.db")
    before = (vault / "backup.db").read_bytes()
    restored = restore(vault / "backup.db", tmp_path / "restored.db", env=RealEnv())
    assert restored.head().position == 2500
    restored.close()
    assert list(vault.iterdir()) == [vault / "backup.db"]
    assert (vault / "backup.db").read_bytes() == before
