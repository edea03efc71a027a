"""A log that the disk has changed, or that lost its end, at the terminal."""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from perdure.eventlog import SqliteStore, StoreFailed
from tests.runtime.cli.terminal import Shell, wait_for_line

GOLDEN = Path(__file__).parents[2] / "golden" / "log-format-1.db"


@pytest.fixture
def used(shell: Shell) -> Shell:
    """A log with a run."""
    shell.call("run", "demo.count", "--arg", "to=2", "--arg", "delay=0")
    return shell


def test_a_damaged_record_is_not_copied_in_silence(used: Shell, tmp_path: Path) -> None:
    """Verify and backup name it; a backup that leaves it out says so, and so does its restore."""
    database = sqlite3.connect(used.data / "log.db")
    database.execute("DROP TRIGGER events_are_never_changed")
    database.execute("UPDATE events SET event_time = event_time + 1 WHERE rowid = 3")
    database.commit()
    database.close()
    assert "record 3 is damaged: its checksum does not match" in used.call("log", "verify").output
    backup, elsewhere = tmp_path / "backup", str(tmp_path / "elsewhere")
    refused = used.call("log", "backup", str(backup))
    assert refused.exit_code == 1
    assert "record 3 is damaged" in refused.output
    assert not backup.exists()
    copied = used.call("log", "backup", str(backup), "--skip-damaged")
    assert copied.exit_code == 1
    assert "Left out 1 damaged record:" in copied.output
    words = ("log", "restore", str(backup), "--data-dir", elsewhere)
    assert used.call(*words).exit_code == 1
    restored = used.call(*words, "--skip-damaged", "--json")
    assert json.loads(restored.output)["left_out"] == ["record 3 is damaged: it is missing"]


def test_verify_counts_records_without_checksums(shell: Shell) -> None:
    """A log of an earlier release is sound, and what is not known of it is said."""
    shell.data.mkdir()
    shutil.copy(GOLDEN, shell.data / "log.db")
    result = shell.call("log", "verify")
    assert result.exit_code == 0
    assert "3 records written before checksums" in result.output
    assert shell.json("log", "verify")["unchecked"] == 3


def test_a_log_that_lost_its_end_is_told_with_the_remedy(used: Shell) -> None:
    """Both by verify and by a command that would write."""
    before = (used.data / "log.db").read_bytes()
    for _ in range(2):  # the second takes what the first wrote into the list
        used.call("run", "demo.count", "--arg", "to=2", "--arg", "delay=0")
    (used.data / "log.db").write_bytes(before)
    assert "runs.db has seen position" in used.call("log", "verify").output
    refused = used.call("run", "demo.count")
    assert refused.exit_code == 1
    assert "Put log.db-wal back" in refused.output


@pytest.mark.parametrize("words", [("run", "demo.count"), ("serve", "--port", "0")])
def test_a_disk_that_fails_is_told_in_one_message(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """What stopped the log, and what to do; not where in the code each task was."""
    with shell.process("run", "demo.count", "--arg", "to=1000") as process:
        wait_for_line(process, lambda line: "running" in line)
    commits, commit = itertools.count(), SqliteStore.commit

    def fail_later(store: SqliteStore, records: Any) -> None:
        if next(commits) > 2:
            raise StoreFailed("OperationalError: disk I/O error")
        commit(store, records)

    monkeypatch.setattr(SqliteStore, "commit", fail_later)
    result = shell.call(*words)
    assert result.exit_code == 5
    assert "The log cannot be used any more: OperationalError: disk I/O error." in result.stderr
    assert "Look at the disk, then start again" in result.stderr
    assert "Traceback" not in result.stderr
    monkeypatch.undo()
    assert shell.call("log", "verify").exit_code == 0
