"""`perdure doctor`: it survives whatever it diagnoses."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from perdure.runtime.process import sandbox_features
from perdure.runtime.process.control_groups import ControlGroups
from tests.runtime.cli.terminal import Shell


@pytest.fixture
def used(shell: Shell) -> Shell:
    """A log with a run."""
    shell.call("run", "demo.count", "--arg", "to=2", "--arg", "delay=0")
    return shell


def test_doctor_looks_at_everything(used: Shell) -> None:
    """Versions, log, disk, clock and sandbox; nothing is left behind."""
    checks = {check["name"]: check for check in used.json("doctor")["checks"]}
    assert checks.keys() >= {
        "perdure",
        "python",
        "sqlite",
        "log",
        "writer",
        "disk space",
        "fsync",
        "clock",
        "sandbox: isolation",
        "sandbox: network",
        "sandbox: processes",
        "sandbox: memory",
    }
    assert "format 2" in checks["log"]["value"]
    assert checks["writer"]["value"] == "nobody"
    assert {check["status"] for check in checks.values()} <= {"ok", "warn"}
    assert all(check["remedy"] for check in checks.values() if check["status"] != "ok")
    assert not list(used.data.glob(".perdure-doctor*"))


def test_doctor_tells_what_is_enforced_for_processes(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not is a warning, with what holds instead and how to change that."""
    poor = sandbox_features.SandboxFeatures(trouble="Operation not permitted")
    monkeypatch.setattr(sandbox_features, "features", lambda: poor)
    checks = {check["name"]: check for check in shell.json("doctor")["checks"]}
    for name, told, remedy in (
        ("isolation", "Operation not permitted", "user namespaces"),
        ("network", "has no effect", "network namespaces"),
        ("processes", "not limited", "Delegate=yes"),
        ("memory", "each process", "Delegate=yes"),
    ):
        check = checks[f"sandbox: {name}"]
        assert check["status"] == "warn"
        assert told in check["value"]
        assert remedy in check["remedy"]
    groups = ControlGroups("/there", "/there", is_unified=True)
    rich = sandbox_features.SandboxFeatures(namespaces=1, network=True, groups=groups)
    monkeypatch.setattr(sandbox_features, "features", lambda: rich)
    checks = {check["name"]: check for check in shell.json("doctor")["checks"]}
    promised = [check for name, check in checks.items() if name.startswith("sandbox")]
    assert [check["status"] for check in promised] == ["ok"] * 4


def test_doctor_before_the_first_run(shell: Shell) -> None:
    """There is nothing to complain of, and nothing is made."""
    result = shell.call("doctor")
    assert result.exit_code == 0
    assert "none yet" in result.output
    assert not shell.data.exists()


def test_doctor_finds_what_is_wrong(used: Shell) -> None:
    """A log that cannot be read, and a clock that went back."""
    ahead = sqlite3.connect(used.data / "log.db")
    ahead.execute("DROP TRIGGER events_are_never_changed")
    ahead.execute("UPDATE events SET commit_time = 4102444800000000000")
    ahead.commit()
    ahead.close()
    assert "The clock was set back" in used.call("doctor").output
    (used.data / "log.db").write_bytes(b"nothing")
    result = used.call("doctor")
    assert result.exit_code == 1
    assert "is not a log" in result.output


def checks_of(shell: Shell) -> dict[str, dict[str, str]]:
    """What doctor finds where something is wrong."""
    result = shell.call("doctor", "--json")
    assert result.exit_code == 1, result.output
    return {check["name"]: check for check in json.loads(result.stdout)["checks"]}


def failed(shell: Shell) -> dict[str, dict[str, str]]:
    """The checks that failed; each says what to do, and all others were carried out."""
    checks = checks_of(shell)
    assert checks.keys() >= {"perdure", "disk space", "fsync", "clock", "sandbox: memory"}
    found = {name: check for name, check in checks.items() if check["status"] == "fail"}
    assert all(check["remedy"] for check in found.values())
    return found


def test_doctor_survives_a_file_in_the_place_of_the_data_directory(shell: Shell) -> None:
    """It is a finding with a remedy, like everything that doctor meets."""
    shell.data.write_text("no directory", "utf-8")
    found = failed(shell)
    assert found.keys() == {"data directory"}
    assert "is no directory" in found["data directory"]["value"]
    assert "--data-dir" in found["data directory"]["remedy"]


def test_doctor_finds_that_a_backup_is_no_data_directory(used: Shell) -> None:
    """It says how to make a log of it, and leaves it as it is."""
    used.call("log", "backup", "copy.perdure")
    before = sorted(Path("copy.perdure").iterdir())
    used.data = Path("copy.perdure")
    found = failed(used)
    assert "is a backup" in found["data directory"]["value"]
    assert "perdure log restore" in found["data directory"]["remedy"]
    assert sorted(Path("copy.perdure").iterdir()) == before


@pytest.mark.parametrize(("name", "check"), [("log.db", "log"), ("log.db.lock", "writer")])
def test_doctor_survives_a_directory_in_the_place_of_a_file(
    used: Shell, name: str, check: str
) -> None:
    """The file is named."""
    (used.data / name).unlink()
    (used.data / name).mkdir()
    found = failed(used)
    assert found.keys() == {check}
    assert name in found[check]["value"]


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        ("perdure.eventlog.sqlite.SqliteStore.open_reader", "log"),
        ("perdure.eventlog.sqlite.lock.holder_of", "writer"),
        ("shutil.disk_usage", "disk space"),
        ("tempfile.NamedTemporaryFile", "fsync"),
        ("perdure.runtime.kernel.data_directory.DataDir.check", "data directory"),
    ],
)
@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied", "/x"), OSError(5, "IO")]
)
def test_doctor_survives_what_it_may_not_look_at(
    used: Shell, monkeypatch: pytest.MonkeyPatch, broken: str, check: str, error: OSError
) -> None:
    """A check that cannot be carried out has failed, and all others are carried out."""

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(broken, refuse)
    found = failed(used)
    assert check in found
    assert str(error) in found[check]["value"]


def test_doctor_survives_a_damaged_database(used: Shell) -> None:
    """Whatever of it is damaged."""
    log = used.data / "log.db"
    whole = log.read_bytes()
    for begin in range(0, len(whole), 4096):
        log.write_bytes(whole[:begin] + bytes(4096) + whole[begin + 4096 :])
        result = used.call("doctor", "--json")
        assert result.exit_code in {0, 1}
        assert "log" in {check["name"] for check in json.loads(result.stdout)["checks"]}


def test_doctor_survives_settings_that_make_no_sense(shell: Shell) -> None:
    """What does not need them is checked all the same."""
    Path("perdure.toml").write_text("runs = 'many'\n", "utf-8")
    checks = checks_of(shell)
    assert "runs" in checks["settings"]["value"]
    assert "sandbox: isolation" in checks
