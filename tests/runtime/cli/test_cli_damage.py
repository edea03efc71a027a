"""A log that the disk has changed, or that lost its end, at the terminal."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.runtime.cli.terminal import Shell

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
