from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from eventsourcing.tests.persistence import (
    ApplicationRecorderTestCase,
    NonInterleavingNotificationIDsBaseCase,
)

from perdure.eventlog import (
    DiskFull,
    LogLocked,
    LogUnsupported,
    MemoryStore,
    ReadOnlyLog,
    RealEnv,
    SqliteStore,
    Store,
    StoreBusy,
    StoreFailed,
)
from perdure.eventlog.errors import StoreConflict, StoreDamaged
from perdure.eventlog.sqlite import schema
from perdure.eventlog.sqlite.connection import classified
from perdure.eventlog.sqlite.store import BACKUP, WAL_LIMIT
from perdure.eventlog.store import Bounds
from perdure.eventlog.testing import (
    StoreContract,
    TextStreamIds,
    example_log,
    example_record,
)


class TestMemoryStore(StoreContract):
    """The memory store keeps the contract."""

    def make_store(self) -> Store:
        """Make an empty one."""
        return MemoryStore()


class TestSqliteStore(StoreContract):
    """The SQLite store keeps the contract."""

    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Path) -> None:
        """Give each test a directory; a test may open several stores in it."""
        self._directory = tmp_path
        self._made = 0

    def make_store(self) -> Store:
        """Make an empty one."""
        self._made += 1
        return SqliteStore.open(self._directory / f"{self._made}.db", env=RealEnv())


# The recorder tests that the eventsourcing library ships.


class TestMemoryRecorder(TextStreamIds, ApplicationRecorderTestCase[MemoryStore]):
    """The memory store passes the library's own tests."""

    def create_recorder(self) -> MemoryStore:
        """Make an empty one."""
        return MemoryStore()


class TestMemoryOrder(TextStreamIds, NonInterleavingNotificationIDsBaseCase):
    """Positions of concurrent inserts do not interleave."""

    def create_recorder(self) -> MemoryStore:
        """Make an empty one."""
        return MemoryStore()


class SqliteRecorder(TextStreamIds):
    """Opens SQLite stores in the test's directory, and closes them."""

    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Path) -> object:
        """Give each test a directory."""
        self._path = tmp_path / "log.db"
        yield
        self._store.close()

    def create_recorder(self) -> SqliteStore:
        """Make an empty one."""
        self._store = SqliteStore.open(self._path, env=RealEnv())
        return self._store


class TestSqliteRecorder(SqliteRecorder, ApplicationRecorderTestCase[SqliteStore]):
    """The SQLite store passes the library's own tests."""


class TestSqliteOrder(SqliteRecorder, NonInterleavingNotificationIDsBaseCase):
    """Positions of concurrent inserts do not interleave."""


# What is special about the file.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the log of a test lies."""
    return tmp_path / "log.db"


def make_log(path: Path) -> None:
    """Leave a log of fifteen records behind."""
    store = SqliteStore.open(path, env=RealEnv())
    store.commit(example_log())
    store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET state = x'00' WHERE rowid = 1",
        "UPDATE events SET rowid = 99 WHERE rowid = 1",
        "DELETE FROM events WHERE rowid = 1",
        "DELETE FROM events",
    ],
)
def test_the_database_refuses_to_change_the_past(path: Path, statement: str) -> None:
    """Not even by hand, in another program, can a record be changed or deleted."""
    make_log(path)
    database = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        database.execute(statement)
    database.close()


@pytest.mark.parametrize("verb", ["INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE"])
@pytest.mark.parametrize("change", [{}, {"position": 99}, {"version": 99}, {"position": 3}])
def test_the_database_refuses_to_replace_a_record(
    path: Path, verb: str, change: dict[str, Any]
) -> None:
    """Neither a position nor a version can be taken twice, by whatever statement."""
    make_log(path)
    database = sqlite3.connect(path)
    taken = example_record(1, "run/0", scope="session/0")._replace(**change)
    before = database.execute("SELECT * FROM events").fetchall()
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        database.execute(schema.INSERT.replace("INSERT", verb, 1), taken)
    assert database.execute("SELECT * FROM events").fetchall() == before
    database.close()


def test_the_database_refuses_a_record_after_a_seal(path: Path) -> None:
    """Sealed is sealed for every program that opens the file."""
    store = SqliteStore.open(path, env=RealEnv())
    store.commit([example_record(1, seal=True)])
    store.close()
    database = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="sealed"):
        database.execute(schema.INSERT, example_record(2, version=2))
    database.close()


def test_every_connection_is_durable(path: Path) -> None:
    """WAL and synchronous=FULL are read back from each connection."""
    store = SqliteStore.open(path, env=RealEnv())
    for commit in (True, False):
        with store.datastore.ours(commit=commit) as c:
            assert c.execute("PRAGMA synchronous").fetchone() == (2,)
            assert c.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_a_log_has_one_lock_by_whatever_name(path: Path) -> None:
    """A symbolic link does not let a second writer in."""
    store = SqliteStore.open(path, env=RealEnv())
    alias = path.with_name("alias.db")
    alias.symlink_to(path)
    with pytest.raises(LogLocked):
        SqliteStore.open(alias, env=RealEnv())
    store.close()


def test_a_foreign_database_is_left_as_it_was(tmp_path: Path) -> None:
    """Refusing it changes nothing of it and puts nothing beside it."""
    foreign = tmp_path / "foreign.db"
    database = sqlite3.connect(foreign)
    database.execute("CREATE TABLE t (x)")
    database.close()
    before = foreign.read_bytes()
    with pytest.raises(LogUnsupported):
        SqliteStore.open(foreign, env=RealEnv())
    assert foreign.read_bytes() == before
    assert list(tmp_path.iterdir()) == [foreign]


def test_the_writer_needs_no_new_connection(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When no file can be opened any more, what is open goes on writing."""
    store = SqliteStore.open(path, env=RealEnv())
    store.commit([example_record(1)])

    def refuse(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr("perdure.eventlog.sqlite.connection.sqlite3.connect", refuse)
    with store.datastore.get_connection(commit=False):  # a reader has the only other one
        assert store.stream_state("run/1").version == 1
        assert store.scope_position("run/1") == 1
        assert len(store.slice_of_stream("run/1", 0, 1)) == 1
        store.commit([example_record(2, version=2)])
        with pytest.raises(StoreFailed, match="cannot open"):
            store.head()
    store.close()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_FULL, DiskFull),
        (sqlite3.SQLITE_BUSY, StoreBusy),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreBusy),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, StoreConflict),
        (sqlite3.SQLITE_CONSTRAINT_TRIGGER, StoreConflict),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreFailed),
        (sqlite3.SQLITE_IOERR_WRITE, StoreFailed),
        (sqlite3.SQLITE_CORRUPT, StoreDamaged),
    ],
)
def test_a_failure_is_told_apart(code: int, expected: type[Exception]) -> None:
    """Conflict, full disk and busy lock have names; everything else is an unknown outcome."""
    error = sqlite3.OperationalError("m")
    error.sqlite_errorcode = code
    assert type(classified(error, Path("log.db"))) is expected


def test_a_checkpoint_that_fails_is_seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed sync of the database file is not swallowed; a full disk waits for better times."""
    store = SqliteStore.open(path, env=RealEnv())
    for error, expected in ((StoreFailed("io"), StoreFailed), (DiskFull("full"), None)):

        def fail(_: str, error: Exception = error) -> int:
            raise error

        monkeypatch.setattr(store, "_checkpoint", fail)
        if expected is None:
            store.upkeep()
        else:
            with pytest.raises(expected):
                store.upkeep()
    store.close()


def test_a_second_writer_is_told_who_the_first_is(path: Path) -> None:
    """One process writes a log; another is refused and learns the holder's pid."""
    store = SqliteStore.open(path, env=RealEnv())
    with pytest.raises(LogLocked) as refusal:
        SqliteStore.open(path, env=RealEnv())
    assert refusal.value.pid is not None
    assert str(refusal.value.pid) in str(refusal.value)
    store.close()
    SqliteStore.open(path, env=RealEnv()).close()


def test_readers_open_beside_the_writer_and_cannot_write(path: Path) -> None:
    """A reader sees each commit as soon as it is made, and is refused a write."""
    writer = SqliteStore.open(path, env=RealEnv())
    reader = SqliteStore.open_reader(path)
    writer.commit([example_record(1)])
    assert reader.head().position == 1
    assert reader.generation == writer.generation
    with pytest.raises(ReadOnlyLog):
        reader.commit([example_record(2, version=2)])
    reader.close()
    writer.close()


def test_a_reader_is_refused_by_the_database_too(path: Path) -> None:
    """A reading connection could not write if it wanted to."""
    make_log(path)
    reader = SqliteStore.open_reader(path)
    with (
        pytest.raises(sqlite3.OperationalError, match="readonly"),
        reader.datastore.transaction(commit=True) as c,
    ):
        c.execute("INSERT INTO about VALUES ('x', 'y')")
    reader.close()


def test_what_is_no_log_is_not_opened(tmp_path: Path) -> None:
    """Other files, other databases, backups and newer formats are refused with a reason."""
    text, database, newer = tmp_path / "text", tmp_path / "other.db", tmp_path / "newer.db"
    text.write_text("not a database, and long enough to be none" * 40)
    other = sqlite3.connect(database)
    other.execute("CREATE TABLE t (x)")
    other.close()
    make_log(newer)
    changed = sqlite3.connect(newer)
    changed.execute("PRAGMA user_version = 99")
    changed.close()
    SqliteStore.create(tmp_path / "backup.db", env=RealEnv(), kind=BACKUP).close()
    for name, reason in [
        ("text", "not a log"),
        ("other.db", "not a Perdure log"),
        ("newer.db", "format 99"),
        ("backup.db", "is a backup"),
    ]:
        with pytest.raises(LogUnsupported, match=reason):
            SqliteStore.open(tmp_path / name, env=RealEnv())
    with pytest.raises(LogUnsupported, match="no log at"):
        SqliteStore.open_reader(tmp_path / "nowhere.db")


def test_a_log_is_the_same_log_after_closing(path: Path) -> None:
    """Records and generation last; another log has another generation."""
    make_log(path)
    first = SqliteStore.open_reader(path)
    again = SqliteStore.open_reader(path)
    assert first.generation == again.generation
    assert first.read_all(0, Bounds()) == again.read_all(0, Bounds())
    other = SqliteStore.open(path.with_name("other.db"), env=RealEnv())
    assert other.generation != first.generation
    for store in (first, again, other):
        store.close()


def test_a_locked_database_is_busy_and_not_broken(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program's write lock makes an append wait, then says so; nothing is written."""
    monkeypatch.setattr("perdure.eventlog.sqlite.connection.BUSY_SECONDS", 0.05)
    store = SqliteStore.open(path, env=RealEnv())
    other = sqlite3.connect(path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        store.commit([example_record(1)])
    other.close()
    store.commit([example_record(1)])
    assert store.head().position == 1
    store.close()


def test_upkeep_bounds_the_write_ahead_log(path: Path) -> None:
    """Megabytes of records, with a reader that comes and goes, leave a short write-ahead log."""
    store = SqliteStore.open(path, env=RealEnv())
    reader = SqliteStore.open_reader(path)
    wal = path.with_name("log.db-wal")
    largest = 0
    for number in range(1, 61):
        store.commit([example_record(number, version=number, size=900_000)])
        reader.read_all(number - 1, Bounds())
        if store.needs_upkeep:
            store.upkeep()
        largest = max(largest, wal.stat().st_size)
    assert path.stat().st_size > 40 << 20
    assert largest < WAL_LIMIT
    reader.close()
    store.close()


def test_a_stubborn_reader_is_waited_for_once_and_then_the_log_goes_on(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A foreign reader that holds a snapshot lets the write-ahead log grow, and nothing else.

    That is told once, with what to do.
    """
    store = SqliteStore.open(path, env=RealEnv())
    store.commit([example_record(1)])
    stubborn = sqlite3.connect(path, isolation_level=None)
    stubborn.execute("BEGIN")
    stubborn.execute("SELECT count(*) FROM events").fetchone()
    for number in range(2, 50):
        store.commit([example_record(number, version=number, size=900_000)])
        if store.needs_upkeep:
            store.upkeep()
    assert store.wal_bytes == path.with_name("log.db-wal").stat().st_size > WAL_LIMIT
    (warning,) = [r.getMessage() for r in caplog.records if "grows" in r.getMessage()]
    assert "End that program's transaction" in warning
    stubborn.close()
    store.upkeep()
    assert store.wal_bytes == path.with_name("log.db-wal").stat().st_size == 0
    store.close()
