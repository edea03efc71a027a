"""A log where nothing can be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.eventlog import RealEnv, SqliteStore, StoreFailed
from perdure.eventlog.record import START
from perdure.eventlog.sqlite.file import wal_of


def test_a_log_on_a_read_only_disk_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite makes no file beside it; a log that was left open says what to do instead."""
    path = tmp_path / "log.db"
    SqliteStore.open(path, env=RealEnv()).close()
    monkeypatch.setattr("perdure.eventlog.sqlite.store.is_read_only", lambda _: True)
    before = sorted(tmp_path.iterdir())
    reader = SqliteStore.open_reader(path)
    assert reader.head() == START
    assert sorted(tmp_path.iterdir()) == before
    reader.close()
    wal_of(path).write_bytes(b"left")
    with pytest.raises(StoreFailed, match="copy its directory"):
        SqliteStore.open_reader(path)
