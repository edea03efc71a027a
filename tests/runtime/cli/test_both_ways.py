"""Commands print the same whether they read the log beside its writer or ask a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.runtime.features import FEATURES
from tests.runtime.cli.terminal import Shell, wait_for_line
from tests.runtime.cli.test_cli import imported
from tests.runtime.cli.test_cli_answer import left_asking

WRITING = {"run", "retry", "cancel", "answer"}
ABOUT_A_RUN = ("show", "history", "export", "logs", "watch")


@contextmanager
def serving(shell: Shell) -> Iterator[str]:
    """Let a server hold the log for the length of a block; give its address."""
    with shell.process("serve", "--port", "0", "--json") as server:
        yield json.loads(wait_for_line(server, lambda line: line.startswith("{")))["url"]


def reading_commands(shell: Shell) -> list[tuple[str, ...]]:
    """Every command that reads, on the runs of a shell; one asked something, and was canceled."""
    asking = shell.runs()[0]["run_id"]
    then = shell.json("show", asking)["cursor"]
    shell.call("cancel", asking)
    runs = shell.runs()
    ids = [run["run_id"] for run in runs]
    page = shell.json("runs", "--limit", "2")
    commands: list[tuple[str, ...]] = [
        ("runs", "--status", "succeeded", "--status", "failed"),
        ("runs", "--plugin", "test"),
        ("runs", "--entry", "fail", "--group", "root"),
        ("runs", "--task", "counting"),
        ("runs", "--plugin", "nope"),
        ("runs",),
        ("runs", "--limit", "2", "--at", shell.json("show", ids[1])["cursor"]),
        ("runs", "--after", page["next_after"], "--limit", "2"),
        ("runs", "--at", "2020-01-01"),
        ("runs", "--tree"),
        ("runs", "--group", "root"),
        ("runs", "--started-by", next(run["run_id"] for run in runs if run["children"])),
        ("show", asking, "--at", then),  # with its question
        ("history", asking, "--at", then),
        ("plugins",),
    ]
    commands += [(name, run_id) for run_id in ids for name in ABOUT_A_RUN]
    refused: list[tuple[str, ...]] = [
        ("show", "ffff"),
        ("show", ids[0][:3]),
        ("show", ids[0], "--at", "A" * 28),
        ("export", "01a1e3d2-efb2-7bdb-a873-cb150099c071"),
        ("runs", "--after", "nowhere"),
    ]
    commands += refused
    return [*commands, *((*words, "--json") for words in commands)]


@pytest.fixture
def used(shell: Shell) -> Shell:
    """A log with runs of all sorts, one of which asks something."""
    shell.call("run", "demo.count", "--arg", "to=2", "--arg", "delay=0", "--task", "counting")
    shell.call("run", "demo.fail", "--arg", "code=MINE")
    shell.call("retry", shell.runs()[0]["run_id"])
    shell.call("run", "test.exports")
    shell.call("run", "demo.spam", "--arg", "n=700")
    shell.call("run", "test.brood")
    left_asking(shell, "demo.ask")
    return shell


def test_every_command_of_the_features_reads_or_is_known_to_write(used: Shell) -> None:
    """A command that is added is tried both ways, or named here as one that writes."""
    tried = {words[0] for words in reading_commands(used)}
    assert not tried & WRITING
    assert tried | WRITING == {command.name for command in FEATURES.commands}


def test_reading_commands_print_the_same_over_a_server(used: Shell) -> None:
    """Byte for byte, and with the same exit codes and errors; also where PERDURE_URL names it."""
    commands = reading_commands(used)
    beside = [used.call(*words) for words in commands]
    with serving(used) as url:
        for elsewhere in ({}, {"PERDURE_URL": url, "PERDURE_DATA_DIR": "elsewhere"}):
            for words, alone in zip(commands, beside, strict=True):
                asked = used.call(*words, **elsewhere)
                assert asked.stdout == alone.stdout, words
                assert asked.stderr == alone.stderr, words
                assert asked.exit_code == alone.exit_code, words
    assert not Path("elsewhere").exists()


def test_reading_over_a_server_imports_no_event_loop(used: Shell) -> None:
    """They start as quickly as beside a log: the socket is a blocking one."""
    run_id = used.runs()[1]["run_id"]
    with serving(used):
        for words in (["runs"], ["show", run_id[:30]], ["export", run_id], ["logs", run_id]):
            assert imported(used, *words) & {"trio", "rich", "asyncio"} == set(), words
        assert imported(used, "plugins") & {"trio", "rich", "asyncio"} == set()


def test_a_server_elsewhere_runs_what_is_not_installed_here(shell: Shell) -> None:
    """No plugin is loaded here; arguments are read and refused by what the server publishes."""
    with serving(shell) as url:
        here = {"PERDURE_URL": url, "PERDURE_MODULES": "", "PERDURE_DATA_DIR": "elsewhere"}
        done = shell.json_lines("run", "test.greet", "--arg", "name=7", **here)
        assert done[-1]["run"]["status"] == "succeeded"
        assert [line["item"]["json"] for line in done if line["event"] == "export"] == ["hello 7"]
        run_id = done[-1]["run"]["run_id"]
        said = shell.call("run", "test.greet", **here)
        assert f"The server at {url} executes the run." in said.stderr
        wrong = shell.call("run", "demo.count", "--arg", "to=many", **here)
        assert wrong.exit_code == 2
        assert "demo.count takes [to=10] [delay=0.1]" in wrong.stderr
        missing = shell.call("run", "test.nope", **here)
        assert missing.exit_code == 2
        assert "has no entry 'nope'" in missing.stderr
        assert "test.greet" in shell.call("plugins", **here).stdout
        assert shell.call("watch", run_id[:30], **here).exit_code == 0
        assert shell.call("retry", run_id, **here).exit_code == 0
        assert shell.call("cancel", run_id, **here).stdout == f"{run_id} is succeeded already.\n"
        assert not Path("elsewhere").exists()


@pytest.mark.parametrize(
    "words", [("runs",), ("show", "0199"), ("run", "demo.count"), ("plugins",)]
)
def test_a_server_that_cannot_be_asked_is_told(shell: Shell, words: tuple[str, ...]) -> None:
    """An address that is none, one beside a directory, one where nobody answers."""
    both = shell.call(*words, "--data-dir", "here", PERDURE_URL="http://127.0.0.1:1")
    assert both.exit_code == 2
    assert "PERDURE_URL names a server, and --data-dir a directory" in both.stderr
    wrong = shell.call(*words, PERDURE_URL="localhost")
    assert wrong.exit_code == 2
    assert "PERDURE_URL: 'localhost' is no address of a server." in wrong.stderr
    assert "such as http://127.0.0.1:7373" in wrong.stderr
    nobody = shell.call(*words, PERDURE_URL="http://127.0.0.1:1")
    assert nobody.exit_code == 5
    assert "the server at http://127.0.0.1:1 does not answer (Connection refused);" in nobody.stderr
    assert "check PERDURE_URL" in nobody.stderr
    assert not shell.data.exists()


def test_a_server_is_asked_to_write_with_a_key_and_this_process_is_not(shell: Shell) -> None:
    """A lost answer of a server can be asked for again; what runs here has the key it is given."""
    shell.call("run", "demo.fail")
    shell.call("retry", shell.runs()[0]["run_id"])
    assert [run["idempotency_key"] for run in shell.runs()] == [None, None]
    with serving(shell):
        shell.call("run", "demo.fail")
        shell.call("retry", shell.runs()[0]["run_id"])
        shell.call("run", "demo.fail", "--key", "mine")
        keys = [run["idempotency_key"] for run in shell.runs()][:3]
    assert keys[0] == "mine"
    assert all(keys)
    assert len(set(keys)) == 3


def test_doctor_says_that_it_checks_this_machine(shell: Shell) -> None:
    """A server that is named elsewhere is not what it looks at."""
    named = shell.call("doctor", PERDURE_URL="http://127.0.0.1:1")
    assert "PERDURE_URL is not asked: these are checks of this machine" in named.stderr
    assert "PERDURE_URL" not in shell.call("doctor").output
