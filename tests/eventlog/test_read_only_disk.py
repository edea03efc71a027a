"""A log where nothing can be written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from perdure.eventlog import RealEnv, SqliteStore, StoreFailed
from perdure.eventlog.sqlite.file import shm_of
from perdure.eventlog.testing import example_log
from tests.eventlog.read_only import read_only

RECORDS = example_log(streams=2, length=3)


def left_open(path: Path) -> None:
    """Make a log whose newest records are in its write-ahead log, as a killed writer leaves it."""
    store = SqliteStore.open(path / "made.db", env=RealEnv())
    store.commit(RECORDS)
    for part in ("", "-wal", "-shm"):
        shutil.copy(path / f"made.db{part}", path / f"log.db{part}")
    store.close()


def positions(path: Path) -> int:
    """Read a log; give how many records it has."""
    reader = SqliteStore.open_reader(path)
    try:
        return reader.head().position
    finally:
        reader.close()


def test_a_log_on_a_read_only_disk_is_read(tmp_path: Path) -> None:
    """SQLite makes no file beside it, and none is needed."""
    path = tmp_path / "log.db"
    store = SqliteStore.open(path, env=RealEnv())
    store.commit(RECORDS)
    store.close()
    before = sorted(tmp_path.iterdir())
    with read_only(tmp_path):
        assert positions(path) == len(RECORDS)
    assert sorted(tmp_path.iterdir()) == before


def test_a_log_in_a_directory_of_somebody_else_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this user may not write there, no file is made beside the log while it is read."""
    path = tmp_path / "log.db"
    SqliteStore.open(path, env=RealEnv()).close()
    monkeypatch.setattr(os, "access", lambda *_: False)
    before = sorted(tmp_path.iterdir())
    reader = SqliteStore.open_reader(path)
    assert reader.head().position == 0
    assert sorted(tmp_path.iterdir()) == before
    reader.close()


def test_a_log_that_was_left_open_is_read_on_a_read_only_disk(tmp_path: Path) -> None:
    """With all that is in its write-ahead log, if its index was copied, too."""
    left_open(tmp_path)
    with read_only(tmp_path):
        assert positions(tmp_path / "log.db") == len(RECORDS)


def test_a_log_that_cannot_be_read_there_says_what_to_do(tmp_path: Path) -> None:
    """Without an index of the write-ahead log, SQLite would have to make one."""
    left_open(tmp_path)
    shm_of(tmp_path / "log.db").unlink()
    with read_only(tmp_path), pytest.raises(StoreFailed, match="copy its directory"):
        SqliteStore.open_reader(tmp_path / "log.db")
    assert positions(tmp_path / "log.db") == len(RECORDS)
