from __future__ import annotations

import json
import logging
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio

from perdure.eventlog import (
    Append,
    RealEnv,
    SqliteStore,
    StreamWrite,
    back_up,
    open_log,
    restore,
    verify,
)
from perdure.eventlog.errors import DamagedRecord, LogCutShort, StoreDamaged
from perdure.eventlog.snapshots import Snapshot, SnapshotFile, SnapshotKey
from perdure.eventlog.sqlite.file import wal_of
from perdure.eventlog.sqlite.store import BACKUP
from perdure.eventlog.store import Bounds, Witness
from perdure.eventlog.testing import example_event, example_log, example_record
from perdure.eventlog.verify import Problems

GOLDEN = Path(__file__).parent.parent / "golden" / "log-format-1.db"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a log with records 1 to 40 of streams run/0 to run/3, by turns."""
    path = tmp_path / "log.db"
    with closing(SqliteStore.open(path, env=RealEnv())) as store:
        store.commit(example_log(streams=4, length=10))
    return path


def change(path: Path, statement: str, *values: object) -> None:
    """Change a log behind its back, which its triggers would refuse."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for trigger in ("changed", "deleted"):
            database.execute(f"DROP TRIGGER IF EXISTS events_are_never_{trigger}")
        database.execute(statement, values)


def spoil(path: Path, *positions: int) -> None:
    """Change a byte of some records."""
    for position in positions:
        change(
            path, "UPDATE events SET state = CAST(state || x'00' AS BLOB) WHERE rowid = ?", position
        )


def stream_at(path: Path, position: int) -> str:
    """Tell whose record lies at a position."""
    with closing(SqliteStore.open_reader(path)) as store:
        return store.read_all(position - 1, Bounds(records=1)).records[0].stream


def test_a_damaged_record_hurts_only_its_stream(path: Path) -> None:
    """The records before it and those of other streams are read; it is named, never given."""
    stream = stream_at(path, 23)
    spoil(path, 23)
    with closing(SqliteStore.open_reader(path)) as store:
        before = store.read_stream(stream, 0, Bounds())
        assert before.more
        assert all(record.position < 23 for record in before.records)
        version = before.records[-1].version
        with pytest.raises(DamagedRecord, match=f"version {version + 1} of stream '{stream}'"):
            store.read_stream(stream, version, Bounds())
        for other in {f"run/{n}" for n in range(4)} - {stream}:
            assert len(store.read_stream(other, 0, Bounds()).records) == 10
        before = store.read_all(0, Bounds())
        assert before.records[-1].position == 22
        assert before.more
        with pytest.raises(DamagedRecord, match="record 23 is damaged: its checksum") as caught:
            store.read_all(22, Bounds())
        assert caught.value.position == 23
        assert store.read_all(23, Bounds()).records[0].position == 24


@pytest.mark.parametrize("damage", ["spoiled", "removed", "no text"])
def test_a_reader_that_passes_damage_over_gets_all_the_rest(
    path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A projection goes on; the log of the process names what it lacks."""
    for position in (1, 22, 23, 40):
        if damage == "spoiled":
            spoil(path, position)
        elif damage == "removed":
            change(path, "DELETE FROM events WHERE rowid = ?", position)
        else:
            change(path, "UPDATE events SET topic = CAST(x'ff' AS TEXT) WHERE rowid = ?", position)
    with closing(SqliteStore.open_reader(path)) as store:
        found, more = list[int](), True
        while more:
            page = store.read_all(found[-1] if found else 0, Bounds(pass_damage=True))
            found += [record.position for record in page.records]
            more = page.more
    assert found == [n for n in range(1, 40) if n not in {1, 22, 23}]
    assert "record 22 is damaged" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


async def test_a_follower_is_told_where_the_log_is_damaged(path: Path) -> None:
    """It gets what lies before, then an error with the position, and the log goes on."""
    spoil(path, 23)
    with closing(SqliteStore.open(path, env=RealEnv())) as store:
        async with open_log(RealEnv(), store) as log:
            follow = await log.follow()
            batch = await follow.next_batch()
            assert batch.records[-1].position == 22
            with pytest.raises(DamagedRecord, match="record 23"):
                await follow.next_batch()
            await log.append(Append([StreamWrite("run/new", 0, [example_event()])]))


async def test_beside_the_writer_a_follower_is_told_too(path: Path) -> None:
    """Looking for new records, a reading process meets a damaged one and lives on."""
    with closing(SqliteStore.open_reader(path)) as store:
        async with open_log(RealEnv(), store) as log:
            follow = await log.follow(log.tail.head)
            assert (await follow.next_batch()).live
            with closing(SqliteStore.open(path, env=RealEnv())) as writer:
                writer.commit([example_record(41, "run/new")._replace(checksum=b"oops")])
            with trio.fail_after(5), pytest.raises(DamagedRecord, match="record 41"):
                await follow.next_batch()
            assert len((await log.read_stream("run/0")).records) == 10


async def test_an_append_to_a_damaged_stream_is_refused_alone(path: Path) -> None:
    """Its last record, which tells version and seal, is not believed; others are written."""
    stream = stream_at(path, 40)
    spoil(path, 40)
    with closing(SqliteStore.open(path, env=RealEnv())) as store:
        async with open_log(RealEnv(), store) as log:
            with pytest.raises(DamagedRecord, match=stream):
                await log.append(Append([StreamWrite(stream, 10, [example_event()])]))
            receipt = await log.append(Append([StreamWrite("run/new", 0, [example_event()])]))
            assert receipt.mark.position == 41


async def test_verification_names_every_damaged_record(path: Path) -> None:
    """Each is in the report; what is missing is one problem, however much it is."""
    spoil(path, 7, 23)
    change(path, "DELETE FROM events WHERE rowid BETWEEN 30 AND 34")
    with closing(SqliteStore.open_reader(path)) as store:
        async with open_log(RealEnv(), store) as log:
            report = await verify(log)
    named = [problem for problem in report.problems if problem.startswith("record")]
    assert [problem.split()[1] for problem in named] == ["7", "23", "30"]
    assert "and so are the next 4" in named[2]
    assert (report.records, report.unchecked) == (33, 0)


async def test_a_backup_of_a_damaged_log_is_refused_or_leaves_the_damage_out(
    path: Path, tmp_path: Path
) -> None:
    """No copy takes damage along in silence. A copy with holes says so to its readers."""
    spoil(path, 7, 23)
    target = tmp_path / "backup.db"
    with closing(SqliteStore.open_reader(path)) as store:
        async with open_log(RealEnv(), store) as log:
            with pytest.raises(DamagedRecord, match=r"2 of its records: record 7 .*record 23 "):
                await back_up(log, target)
            assert not list(tmp_path.glob("backup*"))
            left_out = Problems()
            assert await back_up(log, target, left_out=left_out) == 40
    assert left_out.problem_count == 2
    with closing(SqliteStore.open_reader(target, kind=BACKUP)) as copy:
        with pytest.raises(DamagedRecord, match="record 7 is damaged: it is missing"):
            copy.read_all(6, Bounds())
        assert copy.read_all(7, Bounds()).records[0].position == 8


async def test_a_restore_compares_every_record(path: Path, tmp_path: Path) -> None:
    """A backup that the disk has changed makes no log, unless its damage is to be left out."""
    backup, target = tmp_path / "backup.db", tmp_path / "restored.db"
    with closing(SqliteStore.open_reader(path)) as store:
        async with open_log(RealEnv(), store) as log:
            await back_up(log, backup)
    content = backup.read_bytes()
    with closing(SqliteStore.open_reader(path)) as store:
        event_id = store.read_all(22, Bounds(records=1)).records[0].event_id
    backup.write_bytes(content.replace(event_id, bytes(16)))
    with pytest.raises(DamagedRecord, match="record 23"):
        restore(backup, target, env=RealEnv())
    assert not target.exists()
    left_out = Problems()
    with closing(restore(backup, target, env=RealEnv(), left_out=left_out)) as restored:
        assert restored.head().position == 40
    assert left_out.problem_count == 1


async def test_a_log_of_before_checksums_opens_and_says_what_it_lacks(tmp_path: Path) -> None:
    """Old records stay as they are; new ones have checksums; verification tells them apart."""
    path = tmp_path / "log.db"
    shutil.copy(GOLDEN, path)
    old = len(json.loads(GOLDEN.with_suffix(".json").read_text()))
    with closing(SqliteStore.open(path, env=RealEnv())) as store:
        async with open_log(RealEnv(), store) as log:
            await log.append(Append([StreamWrite("run/new", 0, [example_event()])]))
            report = await verify(log)
            assert report.sound
            assert (report.records, report.unchecked) == (old + 1, old)
            last, first = store.read_all(old, Bounds()).records, store.read_all(0, Bounds()).records
            assert last[0].checksum is not None
            assert first[0].checksum is None
            await back_up(log, tmp_path / "backup.db")
    with closing(restore(tmp_path / "backup.db", tmp_path / "new.db", env=RealEnv())) as restored:
        assert restored.unchecked == 0
        assert all(record.checksum for record in restored.read_all(0, Bounds()).records)


def test_a_log_of_before_checksums_is_only_read_by_readers(tmp_path: Path) -> None:
    """A reader changes nothing of it, and gives the same records."""
    path = tmp_path / "log.db"
    shutil.copy(GOLDEN, path)
    with closing(SqliteStore.open_reader(path)) as reader:
        before = reader.read_all(0, Bounds()).records
        assert path.read_bytes() == GOLDEN.read_bytes()
        SqliteStore.open(path, env=RealEnv()).close()
        assert reader.read_all(0, Bounds()).records == before
    with closing(SqliteStore.open_reader(path)) as reader:
        assert reader.read_all(0, Bounds()).records == before


def test_a_new_record_cannot_pass_for_one_of_before_checksums(path: Path) -> None:
    """A checksum that is gone is damage."""
    change(path, "UPDATE events SET checksum = NULL WHERE rowid = 23")
    with (
        closing(SqliteStore.open_reader(path)) as store,
        pytest.raises(DamagedRecord, match="record 23"),
    ):
        store.read_all(22, Bounds())


def test_an_old_record_of_another_shape_is_damaged(tmp_path: Path) -> None:
    """Without a checksum at least the types are right, so that nobody stumbles over them."""
    path = tmp_path / "log.db"
    shutil.copy(GOLDEN, path)
    change(path, "UPDATE events SET event_time = 'noon' WHERE rowid = 2")
    with (
        closing(SqliteStore.open_reader(path)) as store,
        pytest.raises(DamagedRecord, match="record 2"),
    ):
        store.read_all(1, Bounds())


@pytest.mark.parametrize("name", ["generation", "kind", "created_at", "unchecked", "checksum"])
def test_what_a_log_says_of_itself_is_covered(path: Path, name: str) -> None:
    """Another generation would let cursors of another log in."""
    change(path, "UPDATE about SET value = '7' WHERE name = ?", name)
    for open_it in (SqliteStore.open_reader, lambda p: SqliteStore.open(p, env=RealEnv())):
        with pytest.raises(StoreDamaged, match="not those that were written"):
            open_it(path)


@pytest.mark.parametrize("loss", ["deleted", "cut"])
def test_a_log_that_lost_its_end_is_refused(path: Path, loss: str) -> None:
    """A file beside it has seen more: nothing is written, and putting the end back mends it."""
    store = SqliteStore.open(path, env=RealEnv())
    store.commit([example_record(41, "run/new")])
    wal = wal_of(path).read_bytes()
    main = path.read_bytes()
    store.close()
    path.write_bytes(main)
    if loss == "cut":
        wal_of(path).write_bytes(wal[:-1])

    def witness(generation: str) -> Witness:
        """Tell what a projection of this log has seen."""
        assert generation == store.generation
        return Witness("runs.db", 41)

    with pytest.raises(LogCutShort, match="ends at position 40, but runs") as caught:
        SqliteStore.open(path, env=RealEnv(), witness=witness)
    assert "log.db-wal" in caught.value.remedy
    assert path.read_bytes() == main
    wal_of(path).write_bytes(wal)
    with closing(SqliteStore.open(path, env=RealEnv(), witness=witness)) as whole:
        assert whole.head().position == 41


def test_a_snapshot_that_was_changed_is_none(tmp_path: Path) -> None:
    """A flipped bit of a cache never changes what is read."""
    path = tmp_path / "snapshots.db"
    key = SnapshotKey("stream", "run/1", "run-1", "0123456789abcdef")
    with closing(SnapshotFile(path)) as cache:
        cache.save(Snapshot(key=key, number=7, check=b"abcd", state=b"a" * 100))
        assert cache.newest(key, None) is not None
    for column in ("state", "event_check", "number"):
        copy = tmp_path / f"{column}.db"
        shutil.copy(path, copy)
        with closing(sqlite3.connect(copy, isolation_level=None)) as database:
            other = "number - 1" if column == "number" else f"substr({column}, 2) || x'62'"
            database.execute(f"UPDATE snapshots SET {column} = {other}")  # noqa: S608 - our names
        with closing(SnapshotFile(copy)) as cache:
            assert cache.newest(key, None) is None


async def test_positions_are_never_used_again(path: Path) -> None:
    """Even if somebody has removed the newest records by force, the next one is another one.

    A follower that would have got the removed ones is told.
    """
    change(path, "DELETE FROM events WHERE rowid > 10")
    store = SqliteStore.open(path, env=RealEnv())
    async with open_log(RealEnv(), store) as log:
        assert "position 40 was used before" in (await verify(log)).problems[0]
        follow = await log.follow(log.cursor(await log.head()))
        receipt = await log.append(Append([StreamWrite("run/9", 0, [example_event()])]))
        assert receipt.mark.position == 41
        with pytest.raises(DamagedRecord, match="record 11 is damaged: it is missing"):
            await follow.next_batch()
        assert [r.position for r in (await log.read_stream("run/9")).records] == [41]
    store.close()


async def test_a_position_that_became_huge_is_passed_in_one_step(
    path: Path, tmp_path: Path
) -> None:
    """Nobody counts up to it: neither lists, nor verification, nor a backup."""
    change(path, "UPDATE events SET rowid = ? WHERE rowid = 40", 1 << 50)
    with closing(SqliteStore.open_reader(path)) as store:
        page = store.read_all(0, Bounds())
        assert page.records[-1].position == 39
        assert not store.read_all(39, Bounds(pass_damage=True)).records
        async with open_log(RealEnv(), store) as log:
            report, left_out = await verify(log), Problems()
            await back_up(log, tmp_path / "backup.db", left_out=left_out)
    assert any("record 40 is damaged" in problem for problem in report.problems)
    assert left_out.problem_count == 1
