"""The program as a whole: what all commands share, and `serve`."""

from __future__ import annotations

import inspect
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import perdure
from perdure.actors.run.status import Status
from perdure.eventlog.env import RealEnv
from perdure.eventlog.sqlite import SqliteStore
from perdure.runtime.cli.program import main
from perdure.runtime.runs.commands import lists, run, show, stay
from perdure.runtime.runs.commands.parameters import STATUSES
from tests.repository.tree import ROOT
from tests.runtime.cli.terminal import Shell

HEAVY = {"trio", "sqlite3", "perdure.eventlog", "msgspec", "rich", "perdure.actors"}


def commands(
    group: click.Group = main, names: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command, with the words that call it."""
    for name, command in group.commands.items():
        yield (*names, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*names, name))


ALL = [words for words, _ in commands()]


def imported(shell: Shell, *words: str) -> set[str]:
    """What a command imports, from the first line on."""
    probe = (
        "import sys\nfrom perdure.runtime.cli import main\n"
        "try: main(sys.argv[1:], prog_name='perdure')\n"
        "finally: print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, *words],
        env=shell.environment(PERDURE_MODULES=""),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def test_version_is_that_of_the_distribution(shell: Shell) -> None:
    """The command and the package name the same version."""
    assert shell.call("--version").output == f"perdure {perdure.__version__}\n"


@pytest.mark.parametrize("words", [[], ["run"], ["runs"], ["log"], ["log", "backup"]])
def test_help_loads_nothing_heavy(shell: Shell, words: list[str]) -> None:
    """Asking for help starts no event loop and opens no database: neither is even imported."""
    assert imported(shell, *words, "--help") & HEAVY == set()


def test_commands_that_read_never_import_trio(shell: Shell) -> None:
    """They start quickly because of what they do without: the event loop and the painter."""
    shell.call("run", "test.exports")
    run_id = shell.runs()[0]["run_id"]
    for words in (
        ["runs"],
        ["runs", "--group", "root", "--json"],
        ["show", run_id],
        ["show", run_id[:20]],
        ["history", run_id],
        ["runs", "--tree"],
        ["export", run_id],
        ["logs", run_id],
        ["plugins"],
        ["config"],
        ["doctor"],
        ["log", "verify"],
    ):
        assert imported(shell, *words) & {"trio", "rich", "asyncio"} == set(), words


def test_run_imports_the_painter_only_on_a_terminal(shell: Shell) -> None:
    """Where nobody looks, no bar is drawn."""
    assert imported(shell, "run", "demo.count", "--arg", "to=1") & {"rich"} == set()


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_has_help_with_examples(shell: Shell, words: tuple[str, ...]) -> None:
    """People learn from examples: each is a call of this very command."""
    result = shell.call(*words, "--help")
    assert result.exit_code == 0
    _, _, examples = result.output.partition("Examples:\n")
    assert examples, words
    assert all(f"perdure {' '.join(words)}" in line for line in examples.splitlines()), examples


def test_the_options_of_all_commands_can_stand_before_and_after_them(shell: Shell) -> None:
    """`perdure --json runs` is `perdure runs --json`."""
    before, after = shell.call("--json", "runs"), shell.call("runs", "--json")
    assert before.output == after.output
    assert json.loads(before.output)["runs"] == []


def test_every_status_can_be_asked_for() -> None:
    """The option knows the statuses without importing them."""
    assert set(STATUSES) == {status.value for status in Status}


@pytest.mark.parametrize(
    ("variables", "file", "said"),
    [
        ({"PERDURE_DATADIR": "x"}, "", "did you mean PERDURE_DATA_DIR?"),
        ({}, "run = 3", "did you mean runs?"),
        ({}, "runs = 'many'", "runs (perdure.toml)"),
        ({}, "runs = ", "perdure.toml cannot be read"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    shell: Shell, variables: dict[str, str], file: str, said: str
) -> None:
    """With the nearest name, the place, and the exit code of a mistake; nothing is made."""
    Path("perdure.toml").write_text(file, "utf-8")
    for words in (["runs"], ["config"], ["run", "demo.count"], ["serve"]):
        result = shell.call(*words, **variables)
        assert result.exit_code == 2
        assert said in result.stderr
    assert not shell.data.exists()


def test_errors_are_objects_for_programs(shell: Shell) -> None:
    """With --json an error is one object on standard error, with its code."""
    for words, code, exit_code in (
        (["show", "0199"], "RUN_NOT_FOUND", 2),
        (["run", "demo.nope"], "ENTRY_NOT_FOUND", 2),
        (["run", "demo"], "VALIDATION_ERROR", 2),
        (["log", "verify"], "UNAVAILABLE", 5),
    ):
        result = shell.call("--json", *words)
        assert (result.exit_code, result.stdout) == (exit_code, "")
        error = json.loads(result.stderr)["error"]
        assert error["code"] == code
        assert error["message"]


def test_colours_are_for_terminals(shell: Shell) -> None:
    """None in a pipe, none where NO_COLOR or --no-color says so."""
    shell.call("run", "demo.fail")
    assert "\x1b[" not in shell.call("runs").output
    assert "\x1b[31m" in shell.on_a_terminal("runs")
    assert "\x1b[" not in shell.on_a_terminal("runs", NO_COLOR="1")
    assert "\x1b[" not in shell.on_a_terminal("runs", "--no-color")
    assert "\x1b[" not in shell.on_a_terminal("--no-color", "show", "nothing")


def test_a_pipe_that_closes_early_is_no_traceback(shell: Shell) -> None:
    """`perdure plugins | head -1` says nothing bad."""
    command = f"{sys.executable} -m perdure.runtime.cli plugins | head -1"
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=ROOT,
        env=shell.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr


def test_serve_creates_the_log_and_finds_it_again(shell: Shell) -> None:
    """On a fresh machine serve makes a private directory with an empty log, and says so."""
    home = shell.data / "deep" / "data"
    told = []
    for _ in range(2):
        with shell.process("serve", "--json", "--port", "0", "--data-dir", str(home)) as process:
            assert process.stdout is not None
            told.append(json.loads(process.stdout.readline()))
            process.terminate()
            assert process.wait(20) == 0
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert told[0].keys() == {"version", "url", "log", "generation", "records"}
    assert (told[0]["log"], told[0]["records"]) == (str(home / "log.db"), 0)
    assert told[0]["generation"] == told[1]["generation"]


def test_serve_refuses_a_log_that_somebody_writes(shell: Shell) -> None:
    """While another process holds the log, serve names it, says what to do, and fails."""
    shell.data.mkdir()
    store = SqliteStore.open(shell.data / "log.db", env=RealEnv())
    try:
        with shell.process("serve", "--port", "0") as process:
            out, err = process.communicate()
    finally:
        store.close()
    assert (process.returncode, out) == (5, "")
    assert f"by process {os.getpid()}." in err
    assert "--data-dir" in err
    assert "Traceback" not in err


def test_a_directory_that_cannot_be_made_is_told(shell: Shell) -> None:
    """A file where the directory should be is no reason for a traceback."""
    Path("taken").write_text("", "utf-8")
    for words in (["serve", "--port", "0"], ["run", "demo.count"]):
        result = shell.call(*words, "--data-dir", "taken/data")
        assert result.exit_code == 5
        assert "taken" in result.stderr


def test_the_command_line_has_no_rule() -> None:
    """What a run may do is decided below: no module here knows the state machine."""
    for module in (lists, run, show, stay):
        assert "perdure.actors.run.core" not in inspect.getsource(module)
