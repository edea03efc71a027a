"""The log as a file, the machine, the settings, the plugins."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from perdure.eventlog.env import RealEnv
from perdure.eventlog.sqlite import SqliteStore
from perdure.eventlog.sqlite.lock import holder_of
from tests.runtime.cli.terminal import Shell
from tests.runtime.settings import TABLE


@pytest.fixture
def used(shell: Shell) -> Shell:
    """A log with a run."""
    shell.call("run", "demo.count", "--arg", "to=2", "--arg", "delay=0")
    return shell


def test_verify_reads_all_of_it(used: Shell) -> None:
    """And says so; for programs as an object."""
    result = used.call("log", "verify")
    assert result.exit_code == 0
    assert "The log is sound." in result.output
    report = used.json("log", "verify")
    assert report["sound"] is True
    assert report["records"] > 5
    assert report["problems"] == []


def test_verify_finds_what_is_wrong(used: Shell) -> None:
    """The problems are listed, and what to do; the exit code says that it failed."""
    database = sqlite3.connect(used.data / "log.db")
    database.execute("DROP TRIGGER events_are_never_deleted")
    database.execute("DELETE FROM events WHERE rowid = 2")
    database.commit()
    database.close()
    result = used.call("log", "verify")
    assert result.exit_code == 1
    assert "record 2 is damaged: it is missing" in result.output
    assert "perdure log restore" in result.output
    assert json.loads(used.call("log", "verify", "--json").output)["sound"] is False


@pytest.mark.parametrize(
    "words", [("runs",), ("log", "verify"), ("run", "demo.count"), ("serve", "--port", "0")]
)
@pytest.mark.parametrize("place", [0, 5000])
def test_a_damaged_file_is_named_with_what_to_do(
    used: Shell, words: tuple[str, ...], place: int
) -> None:
    """Every command says so in a sentence; the exit code says that something is wrong."""
    log = used.data / "log.db"
    content = bytearray(log.read_bytes())
    content[place + 100 : place + 8000] = bytes(index * 7 % 251 for index in range(7900))
    log.write_bytes(content)
    result = used.call(*words)
    assert result.exit_code == 1, result.output
    assert "is damaged: " in result.output
    assert "perdure log restore BACKUP --data-dir DIR" in result.output
    assert "Traceback" not in result.output
    assert words[0] == "log" or str(log) in result.stderr


def test_a_backup_is_restored_elsewhere(used: Shell) -> None:
    """With all runs, as a log of its own; nothing is ever overwritten."""
    assert "records to copy.perdure." in used.call("log", "backup", "copy.perdure").output
    again = used.call("log", "backup", "copy.perdure")
    assert again.exit_code == 5
    assert "never overwritten" in again.stderr
    restored = used.call("log", "restore", "copy.perdure", "--data-dir", "other")
    assert restored.exit_code == 0
    assert used.json("runs", "--data-dir", "other")["runs"] == used.runs()
    twice = used.call("log", "restore", "copy.perdure", "--data-dir", "other")
    assert twice.exit_code == 5
    assert "Pass another directory with --data-dir" in twice.stderr
    cursor = used.json("runs")["cursor"]
    assert used.call("runs", "--data-dir", "other", "--at", cursor).exit_code == 2


@pytest.mark.parametrize("words", [("runs",), ("log", "verify")])
def test_what_is_no_log_is_told_with_a_remedy(shell: Shell, words: tuple[str, ...]) -> None:
    """A file in the place of the directory, and an empty one in the place of the log."""
    Path("file").touch()
    result = shell.call(*words, "--data-dir", "file")
    assert result.exit_code == 2
    assert "file is no directory" in result.stderr
    shell.data.mkdir()
    (shell.data / "log.db").touch()
    result = shell.call(*words)
    assert result.exit_code == 5
    assert "log.db is empty: there is no log in it" in result.stderr
    assert "perdure log restore" in result.stderr


def test_what_the_system_refuses_is_told_with_a_remedy(shell: Shell) -> None:
    """In its words, with the place, and without its numbers."""
    result = shell.call("run", "demo.count", "--data-dir", "/proc/nowhere")
    assert result.exit_code == 5
    assert "/proc/nowhere: No such file or directory." in result.stderr
    assert "--data-dir" in result.stderr
    assert "Errno" not in result.stderr


def test_a_backup_is_verified_where_it_lies(used: Shell) -> None:
    """With all that belongs to it, and nothing is written; damage is found as in a log."""
    used.call("log", "backup", "copy.perdure")
    before = sorted(Path("copy.perdure").iterdir())
    report = used.json("log", "verify", "--data-dir", "copy.perdure")
    assert (report["sound"], report["records"]) == (True, used.json("log", "verify")["records"])
    assert sorted(Path("copy.perdure").iterdir()) == before
    log = Path("copy.perdure/log.backup")
    log.write_bytes(log.read_bytes()[:5000] + bytes(8000) + log.read_bytes()[13000:])
    assert used.call("log", "verify", "--data-dir", "copy.perdure").exit_code == 1


@pytest.mark.parametrize(
    "words",
    [
        ("run", "demo.count"),
        ("runs",),
        ("serve", "--port", "0"),
        ("log", "restore", "copy.perdure"),
    ],
)
def test_a_backup_is_no_place_for_a_log(used: Shell, words: tuple[str, ...]) -> None:
    """Nothing is made inside of it; what to do instead is told."""
    used.call("log", "backup", "copy.perdure")
    before = sorted(Path("copy.perdure").iterdir())
    result = used.call(*words, "--data-dir", "copy.perdure")
    assert result.exit_code == 2, result.output
    assert "copy.perdure is a backup" in result.stderr
    assert "perdure log restore copy.perdure --data-dir DIR" in result.stderr
    assert sorted(Path("copy.perdure").iterdir()) == before


def test_a_backup_is_made_beside_the_writer(used: Shell) -> None:
    """Whoever holds the log is not disturbed."""
    store = SqliteStore.open(used.data / "log.db", env=RealEnv())
    try:
        head = store.head().position
        assert used.json("log", "backup", "copy.perdure")["records"] == head
        assert used.json("log", "verify")["records"] == head
    finally:
        store.close()


def test_what_cannot_be_backed_up_or_restored_leaves_nothing(shell: Shell) -> None:
    """No log, no directory, no backup: each is told, and no file appears."""
    assert shell.call("log", "backup", "copy").exit_code == 5
    shell.data.mkdir()
    SqliteStore.open(shell.data / "log.db", env=RealEnv()).close()
    assert shell.call("log", "backup", "no/such/place").exit_code == 2
    assert shell.call("log", "restore", "missing", "--data-dir", "new").exit_code == 2
    Path("text").write_text("no backup", "utf-8")
    for source in ("text", str(shell.data / "log.db")):
        result = shell.call("log", "restore", source, "--data-dir", "new")
        assert result.exit_code == 2, result.output
        assert "is not a backup" in result.stderr
        assert "Traceback" not in result.output
    assert sorted(path.name for path in Path().iterdir()) == ["data", "text"]


def test_what_is_made_is_for_its_owner_alone(used: Shell) -> None:
    """Directories, the log, projections, backups; doctor tells if somebody has opened them."""
    used.call("log", "backup", "copy.perdure")
    for top in (used.data, Path("copy.perdure")):
        modes = {path: path.stat().st_mode & 0o077 for path in (top, *top.rglob("*"))}
        assert modes.keys() > {top}
        assert not [path for path, mode in modes.items() if mode]
    checks = {check["name"]: check for check in used.json("doctor")["checks"]}
    assert checks["data directory"]["status"] == "ok"
    used.data.chmod(0o755)
    checks = {check["name"]: check for check in used.json("doctor")["checks"]}
    assert checks["data directory"]["status"] == "warn"
    assert f"chmod 700 {used.data}" in checks["data directory"]["remedy"]


def test_the_holder_of_a_log_is_known_without_disturbing_it(tmp_path: Path) -> None:
    """Nobody before, this process while it writes, nobody after."""
    path = tmp_path / "log.db"
    assert holder_of(path) is None
    store = SqliteStore.open(path, env=RealEnv())
    holder = holder_of(path)
    store.close()
    assert holder is not None
    assert holder.known
    assert holder_of(path) is None


def test_config_lists_every_setting_with_its_origin(shell: Shell) -> None:
    """Flags before variables before the file before defaults."""
    Path("perdure.toml").write_text("runs = 5\ncancel_grace = 2\n", "utf-8")
    rows = {
        row["name"]: row
        for row in shell.json("config", "--data-dir", "here", PERDURE_RUNS="7")["settings"]
    }
    assert rows.keys() == set(TABLE.names)
    assert (rows["data_dir"]["value"], rows["data_dir"]["origin"]) == ("here", "--data-dir")
    assert (rows["runs"]["value"], rows["runs"]["origin"]) == (7, "PERDURE_RUNS")
    assert (rows["cancel_grace"]["value"], rows["cancel_grace"]["origin"]) == (2.0, "perdure.toml")
    assert rows["timeout"]["origin"] == "default"
    assert all(row["description"] for row in rows.values())
    assert "runs that may work at once" in shell.call("config").output


def test_plugins_are_listed_with_their_arguments(shell: Shell) -> None:
    """As people would type them; for programs with the schema."""
    said = shell.call("plugins", COLUMNS="80").output
    assert "  demo.count [to=10] [delay=0.1]\n      Count, report progress" in said
    assert "  test.nap seconds=<number>" in said
    views = shell.json("plugins")
    assert [view["plugin_id"] for view in views["plugins"]] == ["demo", "other", "test"]
    assert views["problems"] == []


def test_plugins_that_cannot_be_loaded_are_told(shell: Shell) -> None:
    """With place and remedy; what can be loaded is listed. The exit code says that it failed."""
    result = shell.call("plugins", PERDURE_MODULES="no_such_module")
    assert result.exit_code == 1
    assert "demo.count" in result.stdout
    assert "there is no module no_such_module. Install it" in result.stderr
    empty = shell.call("plugins", PERDURE_MODULES="", PERDURE_DEMO="false")
    assert "No plugins are loaded." in empty.output
    assert "modules = " in empty.output


def test_blobs_go_along_and_are_checked(shell: Shell) -> None:
    """A backup has what the log names; a blob that is gone is told, with the rest."""
    shell.call("run", "demo.files")
    done = shell.json("log", "backup", "copy.perdure")
    assert done["blobs"] == 1
    assert done["blob_bytes"] > 1 << 20
    back = shell.json("log", "restore", "copy.perdure", "--data-dir", "other")
    assert (back["blobs"], back["records"]) == (1, done["records"])
    assert shell.json("log", "verify", "--data-dir", "other")["sound"]
    (blob,) = [path for path in Path("other/scopes").rglob("*") if path.is_file()]
    blob.unlink()
    broken = shell.call("log", "verify", "--data-dir", "other")
    assert broken.exit_code == 1
    assert "is missing" in broken.output
    again = shell.call("log", "backup", "hole.perdure", "--data-dir", "other")
    assert again.exit_code == 1
    assert "is missing" in again.output


def sealed_run(shell: Shell) -> str:
    """Leave a run that has not ended and has a sealed secret; give its id."""
    words = ("run", "test.stay", "--arg", "token=correct-horse")
    with shell.process(*words, PERDURE_MODULES=GUARDED) as process:
        assert process.stdout is not None
        while "staying" not in process.stdout.readline():
            assert process.poll() is None
    (run,) = shell.runs()
    assert run["status"] == "running"
    return str(run["run_id"])


GUARDED = "tests.runtime.secrets.guarded"


def test_sealed_secrets_go_along_with_their_key(shell: Shell) -> None:
    """A run that was left goes on where it was restored, and gets its secret."""
    run_id = sealed_run(shell)
    said = shell.call("log", "backup", "copy.perdure").output
    assert "and 1 sealed secret to copy.perdure." in said
    assert "It contains seal.key: a reader of the backup can open sealed secrets" in said
    back = shell.json("log", "restore", "copy.perdure", "--data-dir", "other")
    assert (back["seals"], back["key"], back["seal_problem_count"]) == (1, True, 0)
    checked = shell.call("log", "verify", "--data-dir", "other")
    assert "Opened 1 sealed secret." in checked.output
    assert "The log is sound." in checked.output
    again = shell.call("retry", run_id, "--data-dir", "other", PERDURE_MODULES=GUARDED)
    assert again.exit_code == 0, again.output
    assert "stayed with 13" in again.output
    assert shell.json("log", "verify", "--data-dir", "other")["seals"] == 0


def test_the_key_can_be_left_out(shell: Shell) -> None:
    """Then nothing runs on what was restored until it is put back; both are said."""
    run_id = sealed_run(shell)
    said = shell.call("log", "backup", "copy.perdure", "--without-key")
    assert "It does not contain seal.key: keep a copy" in said.output
    assert not Path("copy.perdure/seal.key").exists()
    back = shell.call("log", "restore", "copy.perdure", "--data-dir", "other")
    assert back.exit_code == 0
    assert "put it (mode 600) into other now" in back.output
    words = ("retry", run_id, "--data-dir", "other")
    refused = shell.call(*words, PERDURE_MODULES=GUARDED)
    assert refused.exit_code == 2
    assert "seal.key is missing, and 1 sealed secrets need it" in refused.stderr
    shutil.copy2(shell.data / "seal.key", "other")
    assert shell.call(*words, PERDURE_MODULES=GUARDED).exit_code == 0


def test_verify_names_a_damaged_seal_and_the_remedy(shell: Shell) -> None:
    """And so does a backup, which has the rest."""
    run_id = sealed_run(shell)
    (shell.data / "sealed" / run_id).write_bytes(b"half")
    for words in (("log", "verify"), ("log", "backup", "copy.perdure")):
        result = shell.call(*words)
        assert result.exit_code == 1
        assert f"the sealed secret of run {run_id} does not open" in result.output
        assert "perdure retry RUN --secret NAME=VALUE" in result.output
    report = json.loads(shell.call("log", "verify", "--json").output)
    assert (report["sound"], report["problem_count"], report["seal_problem_count"]) == (False, 0, 1)
    (shell.data / "sealed" / run_id).unlink()
    assert f"of run {run_id} is missing" in shell.call("log", "verify").output
