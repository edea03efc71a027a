"""The commands that only read: lists, one run, what it put out and logged, at any moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.runtime.kernel.terminal.text import (
    clean,
    clipped,
    columns_of,
    duration,
    printable,
    size,
)
from tests.eventlog.read_only import read_only
from tests.runtime.cli.terminal import Shell


def files(directory: Path) -> dict[str, bytes]:
    """The files of a directory, those apart that SQLite shares among processes."""
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if not path.name.endswith(("-shm", "-wal"))
    }


@pytest.fixture
def used(shell: Shell) -> Shell:
    """A log with a few runs."""
    shell.call("run", "demo.count", "--arg", "to=2", "--arg", "delay=0", "--task", "counting")
    shell.call("run", "demo.fail", "--arg", "code=MINE")
    shell.call("retry", shell.runs()[0]["run_id"])
    shell.call("run", "test.exports")
    return shell


def test_an_empty_list_says_what_to_do_next(shell: Shell) -> None:
    """A new user is shown the first command; nothing is made by looking."""
    result = shell.call("runs")
    assert result.exit_code == 0
    assert "No runs yet" in result.output
    assert "perdure run demo.count" in result.output
    assert not shell.data.exists()


def test_a_list_that_matches_nothing_says_so(used: Shell) -> None:
    """And how to see all of them."""
    assert "No runs match" in used.call("runs", "--plugin", "nope").output
    assert "No runs match" in used.call("runs", "--at", "2020-01-01").output


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_are_aligned_and_fit(used: Shell, columns: int) -> None:
    """No line is longer than the terminal; every column begins where its title does."""
    for words in (["runs"], ["runs", "--group", "root"], ["config"], ["doctor"]):
        lines = used.call(*words, COLUMNS=str(columns)).stdout.splitlines()
        table = lines[: lines.index("")] if "" in lines else lines
        assert max(map(len, table)) <= columns
    lines = used.call("runs", COLUMNS=str(columns)).stdout.splitlines()
    for title in ("STATUS", "ENTRY", "CREATED"):
        at = lines[0].index(title)
        assert all(line[at - 1] == " " and line[at] != " " for line in lines[1:])
    assert ("NOTE" in lines[0]) is (columns == 120)


def test_lists_are_newest_first_and_filtered(used: Shell) -> None:
    """By status, plugin, entry, task; so many at most, and the rest after a cursor."""

    def entries(*words: str) -> list[str]:
        return [run["entry_id"] for run in used.json("runs", *words)["runs"]]

    assert entries() == ["exports", "fail", "fail", "count"]
    assert entries("--status", "failed") == ["fail", "fail"]
    assert entries("--status", "failed", "--status", "succeeded") == entries()
    assert entries("--plugin", "demo", "--entry", "count") == ["count"]
    assert entries("--task", "counting") == ["count"]
    page = used.json("runs", "--limit", "3")
    assert len(page["runs"]) == 3
    assert entries("--after", page["next_after"]) == ["count"]
    assert f"--after {page['next_after']}" in used.call("runs", "--limit", "3").output


def test_attempts_are_grouped_by_their_root(used: Shell) -> None:
    """Under the id of the root, each with the number of its attempt (R121)."""
    runs = used.runs()
    root = runs[2]["run_id"]
    lines = used.call("runs", "--group", "root").output.splitlines()
    at = lines.index(f"demo.fail  {root}")
    first, second = (line.split() for line in lines[at + 1 : at + 3])
    assert first[:3] == ["1", root, "failed"]
    assert second[:3] == ["2", runs[1]["run_id"], "failed"]
    assert lines[at + 3] == f"demo.count  {runs[3]['run_id']}"
    groups = used.json("runs", "--group", "root")["groups"]
    assert [len(group["runs"]) for group in groups] == [1, 2, 1]
    assert groups[1]["root_run_id"] == root
    assert [run["attempt"] for run in groups[1]["runs"]] == [1, 2]


def test_items_are_grouped_by_their_run(used: Shell) -> None:
    """What one run put out is never mixed with what another did (R121)."""
    found = []
    for run in used.runs():
        items = used.json_lines("export", run["run_id"])
        assert [item["run_id"] for item in items] == [run["run_id"]] * len(items)
        found.append((run["entry_id"], len(items)))
    assert found == [("exports", 4), ("fail", 0), ("fail", 0), ("count", 3)]


def test_a_run_is_shown_with_what_to_do_next(used: Shell) -> None:
    """Fields that say nothing are left out."""
    exports, second, _, count = used.runs()
    said = used.call("show", second["run_id"]).output
    assert "status    failed" in said
    assert "MINE: this entry fails" in said
    assert f"2 of {second['root_run_id']}" in said
    assert f"perdure logs {second['run_id']}" in said
    assert "deadline" not in said
    assert f"perdure export {count['run_id']}" in used.call("show", count["run_id"]).output
    assert used.json("show", exports["run_id"])["run"] == exports


def test_a_run_can_be_called_by_its_beginning(used: Shell) -> None:
    """As long as it fits no other; else the candidates are named."""
    runs = used.runs()
    run_id = runs[0]["run_id"]
    others = [run["run_id"] for run in runs[1:]]
    shared = [n for n in range(len(run_id)) if any(o.startswith(run_id[:n]) for o in others)]
    unique = max(shared) + 1
    assert used.json("show", run_id[:unique])["run"]["run_id"] == run_id
    assert used.json("show", run_id[:unique].upper())["run"]["run_id"] == run_id
    result = used.call("show", run_id[:3])
    assert result.exit_code == 2
    assert "fits several runs" in result.stderr
    assert all(other in result.stderr for other in others)


@pytest.mark.parametrize(
    "command", ["show", "history", "export", "logs", "watch", "retry", "cancel"]
)
def test_a_run_that_does_not_exist(shell: Shell, command: str) -> None:
    """Every command says so with a remedy, with a log and without one, and makes nothing."""
    result = shell.call(command, "0199")
    assert result.exit_code == 2
    assert "there is no log in" in result.stderr
    assert not shell.data.exists()
    shell.call("run", "demo.fail")
    before = shell.runs()
    for name in ("ffff", "01a1e3d2-efb2-7bdb-a873-cb150099c071"):
        result = shell.call(command, name)
        assert result.exit_code == 2
        assert "there is no" in result.stderr
        assert "`perdure runs` lists" in result.stderr
    assert "is not a run id" in shell.call(command, "demo.count").stderr
    assert shell.runs() == before


def test_the_past_is_shown_at_a_cursor_and_at_an_instant(used: Shell) -> None:
    """A cursor, ISO 8601 and epoch seconds name the same moment."""
    count = used.runs()[-1]
    run_id = count["run_id"]
    lines = used.json_lines("watch", run_id, "--after", used.json("show", run_id)["cursor"])
    assert lines[-1]["event"] == "end"
    started = f"{count['started_at']:.6f}"
    then = used.json("show", run_id, "--at", started)
    assert then["run"]["status"] in {"queued", "running"}
    assert used.json("show", run_id, "--at", then["cursor"]) == then
    assert (
        "This is the state at that moment"
        in used.call("show", run_id, "--at", then["cursor"]).output
    )
    page = used.json("runs", "--at", then["cursor"])
    assert [run["run_id"] for run in page["runs"]] == [run_id]
    assert page["runs"][0] == then["run"]
    updated = f"{count['updated_at']:.6f}"
    assert used.json("show", run_id, "--at", updated)["run"] == count
    for small in ("0", "5.5"):  # seconds, and not the nanoseconds that they become
        assert used.json("runs", "--at", small)["runs"] == []
    assert used.json_lines("export", run_id, "--at", then["cursor"]) == []
    assert used.call("show", run_id, "--at", "2020-01-01T00:00:00Z").exit_code == 2


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("yesterday", "is no cursor, no ISO 8601 time and no epoch seconds"),
        ("2026-13-45", "is no cursor"),
        ("nan", "is no cursor"),
        ("A" * 28, "invalid cursor"),
    ],
)
def test_a_moment_that_makes_no_sense_is_refused(used: Shell, at: str, said: str) -> None:
    """With what to write instead."""
    for words in (["runs"], ["show", used.runs()[0]["run_id"]]):
        result = used.call(*words, "--at", at)
        assert result.exit_code == 2
        assert said in result.stderr


@pytest.mark.parametrize(
    "words", [["--limit", "0"], ["--limit", "501"], ["--status", "done"], ["--group", "task"]]
)
def test_options_that_make_no_sense_are_refused(used: Shell, words: list[str]) -> None:
    """As mistakes of usage."""
    assert used.call("runs", *words).exit_code == 2


def test_exports_are_printed_in_order(used: Shell) -> None:
    """For people with what they are; for programs as they are stored."""
    run_id = used.runs()[0]["run_id"]
    assert used.call("export", run_id).output.splitlines() == [
        "1. text  a description",
        "text",
        "2. url",
        "https://example.org",
        "3. binary_url",
        "blob:1",
        "4. json",
        '{"a":1}',
    ]
    assert [item["type"] for item in used.json_lines("export", run_id)] == [
        "text",
        "url",
        "binary_url",
        "json",
    ]
    failed = used.runs()[1]["run_id"]
    assert used.call("export", failed).output == "This run has no exports.\n"
    assert used.json_lines("export", failed) == []


def test_a_large_text_is_printed_by_its_beginning_and_its_address(shell: Shell) -> None:
    """All of it is at the address."""
    shell.call("run", "test.pour", "--arg", "items=1", "--arg", "size=70000")
    run_id = shell.runs()[0]["run_id"]
    (item,) = shell.json_lines("export", run_id)
    shown = shell.call("export", run_id).output.splitlines()[1]
    assert shown == f"{'x' * 200}… ({item['binary_url']})"


def test_log_lines_have_time_and_level_and_dropped_ones_are_counted(shell: Shell) -> None:
    """Every line of a few; of a flood what was kept, and how many were not."""
    shell.call("run", "demo.fail")
    shell.call("run", "demo.spam", "--arg", "n=5000")
    spam, failed = (run["run_id"] for run in shell.runs())
    (line,) = shell.call("logs", failed).output.splitlines()
    time, level, text = line.split(maxsplit=2)
    assert len(time) == len("12:00:00.000")
    assert (level, text) == ("error", "about to fail with DEMO_FAILED")
    *lines, last = shell.json_lines("logs", spam)
    assert len(lines) + last["dropped"] == 5000
    assert f"Dropped {last['dropped']:,} lines" in shell.call("logs", spam).stderr
    shell.call("run", "demo.count", "--arg", "to=1")
    assert "no log lines" in shell.call("logs", shell.runs()[0]["run_id"]).output


def test_reading_writes_nothing(used: Shell) -> None:
    """Not in the log, not beside it, also while the directory of runs is behind."""
    run_id = used.runs()[0]["run_id"]
    before = files(used.data)
    for words in (["runs"], ["show", run_id], ["export", run_id], ["logs", run_id], ["doctor"]):
        used.call(*words)
    assert files(used.data) == before
    (used.data / "runs.db").unlink()
    (used.data / "snapshots.db").unlink()
    assert used.runs()[0]["run_id"] == run_id
    assert files(used.data).keys() == before.keys() - {"runs.db", "snapshots.db"}


def test_a_file_that_is_no_log_is_told(shell: Shell) -> None:
    """Whatever lies there stays as it is."""
    shell.data.mkdir()
    (shell.data / "log.db").write_text("not a log at all", "utf-8")
    reading = (["runs"], ["show", "0199"], ["log", "verify"])
    for words in (*reading, ["run", "demo.count"], ["serve", "--port", "0"]):
        result = shell.call(*words)
        assert result.exit_code == 5
        assert "is not a log" in result.stderr
    assert files(shell.data) == {"log.db": b"not a log at all"}


def test_what_people_read_cannot_steer_their_terminal() -> None:
    """Control characters and directions are shown as what they are not."""
    assert clean("a\x1b[31mb\x07\x9bc\u202ed\te\nf") == "a\ufffd[31mb\ufffd\ufffdc\ufffdd\te\nf"
    assert printable("a\x1b[31mb\x1b[2J\x1b]0;c\x07\td") == "a\x1b[31mb\ufffd[2J\ufffd]0;c\ufffd\td"


@pytest.mark.parametrize("command", ["run", "watch", "show", "runs", "history", "logs"])
def test_an_errors_code_cannot_steer_the_terminal(shell: Shell, command: str) -> None:
    """Wherever it is shown: a plugin chooses it."""
    code = "MINE\x1b]0;owned\x07\x1b[2J"
    words: tuple[str, ...] = ("demo.fail", "--arg", f"code={code}")
    if command != "run":
        shell.call("run", *words)
        words = () if command == "runs" else (str(shell.runs()[0]["run_id"]),)
    printed = shell.on_a_terminal(command, *words, columns=200)
    assert "MINE\ufffd]0;owned\ufffd\ufffd[2J" in printed
    assert "\x1b]0" not in printed
    assert "\x1b[2J" not in printed


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (clipped("abcdef", 6), "abcdef"),
        (clipped("abcdefg", 6), "abcde…"),
        (clipped("漢字漢字", 6), "漢字…"),
        (columns_of("漢e\u0301"), 3),
        (duration(59.94), "59.9s"),
        (duration(61), "1m01s"),
        (duration(3720), "1h02m"),
        (duration(90000), "1d01h"),
        (size(1023), "1023 bytes"),
        (size(1536), "1.5 KiB"),
        (size(5 << 40), "5.0 TiB"),
    ],
)
def test_values_as_people_read_them(shown: Any, expected: Any) -> None:
    """Short, and never wider than they may be."""
    assert shown == expected


def test_reading_commands_write_nothing(shell: Shell) -> None:
    """On a directory that is read-only they answer as anywhere, by what the files beside it hold.

    Only what is to be written fails, and says why.
    """
    shell.call("run", "demo.count", "--arg", "to=12", "--arg", "delay=0")
    (run,) = shell.runs()
    run_id = str(run["run_id"])
    commands = [
        ("runs",),
        ("runs", "--status", "succeeded", "--tree"),
        ("log", "verify"),
        *((name, run_id) for name in ("show", "logs", "export", "history", "watch")),
    ]
    before = [shell.call(*words).output for words in commands]
    files = sorted(shell.data.rglob("*"))
    with read_only(shell.data):
        for words, printed in zip(commands, before, strict=True):
            assert shell.call(*words).output == printed, words
        assert shell.json("log", "backup", "copy.perdure")["records"] > 5
        checks = json.loads(shell.call("doctor", "--json").stdout)["checks"]
        assert [check["name"] for check in checks if check["status"] == "fail"] == ["fsync"]
        refused = shell.call("run", "demo.count")
        assert (refused.exit_code, "--data-dir" in refused.stderr) == (5, True)
    assert sorted(shell.data.rglob("*")) == files
