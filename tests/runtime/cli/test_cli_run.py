"""`perdure run`, `retry` and `cancel`, as a new user would use them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.eventlog.env import RealEnv
from perdure.eventlog.sqlite import SqliteStore
from perdure.runtime.runs.commands.parameters import value_of
from tests.runtime.cli.terminal import Shell, eventually, wait_for_line

WORKING = ("run", "demo.steps", "--arg", "n=50", "--arg", "delay=0.05", "--json")


def run_id_of(process: subprocess.Popen[str]) -> str:
    """The run that a process with --json says it executes, once a step is recorded."""
    first = json.loads(wait_for_line(process, lambda line: '"event":"run"' in line))
    wait_for_line(process, lambda line: '"progress":0.' in line)
    return str(first["run"]["run_id"])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["demo.count", "--arg", "to=3", "--arg", "delay=0"], 0, "✓ succeeded"),
        (["demo.fail", "--arg", "code=MINE"], 1, "MINE: this entry fails"),
        (["test.nap", "--arg", "seconds=60", "--timeout", "0.1"], 4, "■ timeout"),
    ],
)
def test_the_exit_code_tells_how_it_ended(
    shell: Shell, words: list[str], code: int, said: str
) -> None:
    """Succeeded, failed, timeout: a script need not read anything."""
    result = shell.call("run", *words)
    assert result.exit_code == code, result.output
    assert said in result.output
    assert result.output.startswith(words[0])


MINE = """
from perdure import RunContext, SyncRunContext, entry, plugin

@plugin("mine")
class Mine:
    @entry
    async def here(self, ctx: RunContext) -> str:
        return "inline"

    @entry
    def there(self, ctx: SyncRunContext) -> str:
        return "in a process"
"""


@pytest.mark.parametrize("entry_id", ["here", "there"])
def test_a_module_in_the_working_directory_is_found(
    shell: Shell, tmp_path: Path, entry_id: str
) -> None:
    """Nothing has to be installed to try a plugin that one has just written."""
    (tmp_path / "my_plugin.py").write_text(MINE)
    with shell.process("run", f"mine.{entry_id}", PERDURE_MODULES="my_plugin") as process:
        assert process.wait(30) == 0, process.communicate()


def test_what_a_run_puts_out_is_shown_as_it_comes(shell: Shell) -> None:
    """Stages, progress, a line for each item, the outcome."""
    said = shell.call("run", "test.exports").output.splitlines()
    assert said[1:-1] == [
        "running",
        "  text  a description: text",
        "  url  https://example.org",
        "  binary_url  blob:1",
        '  json  {"a":1}',
    ]
    said = shell.call("run", "demo.steps", "--arg", "n=2", "--arg", "delay=0").output.splitlines()
    assert "  working step 1 of 2" in said


def test_a_terminal_gets_a_bar(shell: Shell) -> None:
    """It shows stage and progress, and is gone at the end; the items stay."""
    words = ("run", "demo.count", "--arg", "to=20", "--arg", "delay=0.02")
    written = shell.on_a_terminal(*words)
    assert "━" in written
    assert "%" in written
    assert "20 of 20" in written
    assert "counted to 20" in written
    assert written.rindex("succeeded") > written.rindex("━")
    assert written.count("\x1b[?25h") == 1, "the cursor is shown again"


def test_a_question_is_answered_on_the_terminal(shell: Shell) -> None:
    """What is typed is the answer; where nobody can type, that is said."""
    written = shell.on_a_terminal("run", "demo.ask", typed="[1, 2]\n")
    assert "The run asks: Shall I go on?" in written
    assert "json  [1,2]" in written
    with shell.process("run", "demo.ask") as process:
        wait_for_line(process, lambda line: "cannot be answered here" in line)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 3


def test_programs_get_json_lines_in_order(shell: Shell) -> None:
    """The record, changes, items, the record at the end; each with the cursor to go on from."""
    lines = shell.json_lines("run", "demo.count", "--arg", "to=10", "--arg", "delay=0")
    assert [line["event"] for line in lines[:1] + lines[-1:]] == ["run", "end"]
    texts = [line["item"].get("text") for line in lines if line["event"] == "export"]
    assert texts[:10] == [f"counted to {n}" for n in range(1, 11)]
    assert any(line["change"]["status"] == "running" for line in lines if line["event"] == "change")
    assert all(line["cursor"] for line in lines)
    assert lines[-1]["run"]["status"] == "succeeded"


def test_arguments_are_json_or_text(shell: Shell) -> None:
    """What is not JSON is text, and so is what the entry wants as text."""
    for typed, meant in (("you", "you"), ("7", "7"), ('"quoted"', "quoted"), ("[1", "[1")):
        lines = shell.json_lines("run", "test.greet", "--arg", f"name={typed}")
        (item,) = [line["item"] for line in lines if line["event"] == "export"]
        assert item["json"] == f"hello {meant}"


@pytest.mark.parametrize(
    ("kind", "typed", "meant"),
    [
        (str, "5", "5"),
        (str | None, "5", "5"),
        (str | None, "null", None),
        (str | bool, "true", True),
        (str | list[int], "{}", "{}"),
        (int | str, "5", 5),
        (float, "5", 5),
        (Any, "5", 5),
    ],
)
def test_what_can_only_be_text_stays_text(kind: Any, typed: str, meant: Any) -> None:
    """Among several types, JSON of one of them is that; everything else is what was typed."""
    assert value_of(typed, msgspec.json.schema(kind)) == meant


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["demo"], "is not PLUGIN.ENTRY"),
        (["demo."], "is not PLUGIN.ENTRY"),
        (["nope.count"], "no plugin 'nope' is loaded"),
        (["demo.nope"], "has no entry 'nope', but ask, count"),
        (["demo.count", "--arg", "to"], "is not NAME=VALUE"),
        (["demo.count", "--arg", "=1"], "is not NAME=VALUE"),
        (["demo.count", "--arg", "to=1", "--arg", "to=2"], "given twice"),
        (["demo.count", "--arg", "to=many"], "demo.count takes [to=10] [delay=0.1]"),
        (["demo.count", "--arg", "to=0"], "args.to: expected int >= 1"),
        (["demo.count", "--arg", "too=5"], "args.too: expected one of the names"),
        (["demo.count", "--arg", "to=null"], "args.to: expected int, got null"),
        (["demo.count", "--timeout", "0"], "--timeout"),
        (["demo.count", "--timeout", "soon"], "--timeout"),
        (["demo.count", "--key", ""], "idempotency_key"),
        (["demo.count", "--task", "x" * 300], "task_id"),
        (["demo.count", "extra"], "unexpected extra argument"),
        (["demo.count", "--wrong"], "--wrong"),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(shell: Shell, words: list[str], said: str) -> None:
    """A clear error with exit code 2; no run is begun."""
    result = shell.call("run", *words)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stdout == ""
    assert shell.runs() == []
    if "--key" not in words and "--task" not in words:
        assert not shell.data.exists(), "not even a directory is made"


def test_bad_arguments_are_named_for_programs_too(shell: Shell) -> None:
    """With --json the details of VALIDATION_ERROR are there, as over HTTP."""
    result = shell.call("run", "demo.count", "--arg", "to=null", "--arg", "too=1", "--json")
    told = json.loads(result.stderr)["error"]
    paths = [each["path"] for each in told["details"]["errors"]]
    assert (told["code"], paths) == ("VALIDATION_ERROR", ["args.too", "args.to"])


def test_a_plugin_that_cannot_be_loaded_is_named_and_the_rest_works(shell: Shell) -> None:
    """A warning with the remedy; the run goes on."""
    result = shell.call("run", "demo.count", "--arg", "to=1", PERDURE_MODULES="no_such_module")
    assert result.exit_code == 0
    assert "there is no module no_such_module" in result.stderr


def test_a_key_is_used_once(shell: Shell) -> None:
    """The same key finds the same run; for another request it is refused."""
    words = ("run", "demo.count", "--arg", "delay=0", "--key", "once", "--arg")
    first, again = (shell.json_lines(*words, "to=2")[-1]["run"]["run_id"] for _ in range(2))
    assert first == again
    refused = shell.call(*words, "to=3")
    assert refused.exit_code == 5
    assert "used for another request" in refused.stderr


def test_a_log_that_another_process_holds(shell: Shell) -> None:
    """What needs the writer says who holds it and what to do; reading works beside it."""
    shell.call("run", "demo.fail")
    run_id = shell.runs()[0]["run_id"]
    store = SqliteStore.open(shell.data / "log.db", env=RealEnv())
    try:
        before = store.head()
        for words in (["run", "demo.count"], ["retry", run_id]):
            with shell.process(*words) as process:
                out, err = process.communicate()
            assert (process.returncode, out) == (5, "")
            assert f"by process {os.getpid()}." in err
            assert "perdure runs" in err
            assert "Traceback" not in err
        assert store.head() == before
        assert shell.runs()[0]["run_id"] == run_id
    finally:
        store.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_the_run_to_end(shell: Shell, number: signal.Signals) -> None:
    """It ends in its own time, as canceled, and the exit code says so."""
    with shell.process("run", "test.polite") as process:
        wait_for_line(process, lambda line: line == "running\n")
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, err) == (3, "")
    assert "Asked the run to end." in out
    assert "■ canceled" in out
    (run,) = shell.runs()
    reason = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    assert (run["status"], run["cancel_reason"]) == ("canceled", reason)


def test_ctrl_c_twice_forces_it(shell: Shell) -> None:
    """Even an entry that hears nothing ends now, and the process with it."""
    words = ("run", "test.deaf", "--arg", "shielded=true")
    with shell.process(*words) as process:
        wait_for_line(process, lambda line: line == "running\n")
        process.send_signal(signal.SIGINT)
        wait_for_line(process, lambda line: line.startswith("Asked"))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (3, "")
    assert "Forcing the run to end." in out
    assert "■ canceled" in out
    assert shell.runs()[0]["status"] == "canceled"


def test_ctrl_c_three_times_leaves_at_once(shell: Shell) -> None:
    """Even while an entry blocks the event loop; the run can be gone on with."""
    Path("blocking.py").write_text(
        "import os, time\nfrom perdure import RunContext, entry, plugin\n\n"
        "@plugin('blocking')\nclass Blocking:\n    @entry\n"
        "    async def block(self, ctx: RunContext) -> None:\n"
        "        os.write(1, b'blocks\\n')\n        time.sleep(60)\n",
        "utf-8",
    )
    path = os.pathsep.join([str(Path.cwd()), shell.environment()["PYTHONPATH"]])
    with shell.process(
        "run", "blocking.block", PERDURE_MODULES="blocking", PYTHONPATH=path
    ) as process:
        wait_for_line(process, lambda line: "blocks" in line)
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            eventually(lambda: not signal.sigpending())
            try:
                process.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
        assert process.wait(20) == 130
    assert shell.runs()[0]["status"] == "running"


def test_after_kill_9_a_run_is_seen_and_gone_on_with(shell: Shell) -> None:
    """The list says that nobody is at work on it; retry goes on, without repeating steps."""
    with shell.process(*WORKING) as process:
        run_id = run_id_of(process)
        process.kill()
        process.wait()
    (left,) = shell.runs()
    assert (left["run_id"], left["status"]) == (run_id, "running")
    assert "No process is at work on this log" in shell.call("runs").output
    assert f"perdure retry {run_id}" in shell.call("show", run_id).output
    result = shell.call("retry", run_id)
    assert result.exit_code == 0, result.output
    assert "Resuming the run where it stopped" in result.output
    (run,) = shell.runs()
    assert (run["run_id"], run["status"], run["attempt"]) == (run_id, "succeeded", 1)
    assert shell.json_lines("export", run_id)[-1]["json"] == [n * n for n in range(50)]


def test_run_leaves_other_runs_alone(shell: Shell) -> None:
    """What another process left stays as it is until somebody asks for it."""
    with shell.process(*WORKING) as process:
        left = run_id_of(process)
        process.kill()
        process.wait()
    before = shell.json("show", left)
    assert shell.call("run", "demo.count", "--arg", "to=1").exit_code == 0
    assert shell.json("show", left) == before


def test_what_was_left_can_be_canceled(shell: Shell) -> None:
    """Nobody has to execute it for that; once is enough."""
    with shell.process(*WORKING) as process:
        run_id = run_id_of(process)
        process.kill()
        process.wait()
    result = shell.call("cancel", run_id, "--reason", "not needed")
    assert (result.exit_code, result.output) == (0, f"{run_id} is canceled.\n")
    assert shell.runs()[0]["cancel_reason"] == "not needed"
    assert shell.call("cancel", run_id).output == f"{run_id} is canceled already.\n"


def test_retry_makes_a_new_attempt_and_executes_it(shell: Shell) -> None:
    """With the arguments of the first; its exit code is that of the new outcome."""
    shell.call("run", "demo.fail", "--arg", "code=MINE")
    first = shell.runs()[0]["run_id"]
    result = shell.call("retry", first)
    assert result.exit_code == 1
    assert "attempt 2" in result.output
    second, _ = shell.runs()
    assert (second["attempt"], second["parent_run_id"]) == (2, first)
    assert second["error"]["code"] == "MINE"


def test_retry_of_what_is_not_loaded_begins_nothing(shell: Shell) -> None:
    """The plugin is looked for before anything is written."""
    shell.call("run", "test.fail")
    (run,) = shell.runs()
    result = shell.call("retry", run["run_id"], PERDURE_MODULES="")
    assert result.exit_code == 2
    assert "no plugin 'test' is loaded" in result.stderr
    assert shell.runs() == [run]


def test_children_end_before_the_command_does(shell: Shell) -> None:
    """What a run has started is executed too, though the run itself is over."""
    Path("families.py").write_text(
        "import trio\nfrom perdure import RunContext, entry, plugin\n\n"
        "@plugin('families')\nclass Families:\n    @entry\n"
        "    async def parent(self, ctx: RunContext) -> None:\n"
        "        await ctx.run.start('families', 'child', {})\n"
        "    @entry\n    async def child(self, ctx: RunContext) -> None:\n"
        "        await trio.sleep(0.3)\n",
        "utf-8",
    )
    path = os.pathsep.join([str(Path.cwd()), shell.environment()["PYTHONPATH"]])
    with shell.process(
        "run", "families.parent", PERDURE_MODULES="families", PYTHONPATH=path
    ) as process:
        assert process.wait(20) == 0
    assert [(run["entry_id"], run["status"]) for run in shell.runs()] == [
        ("child", "succeeded"),
        ("parent", "succeeded"),
    ]


def events(lines: list[Any], kind: str) -> list[Any]:
    """The lines of a kind."""
    return [line for line in lines if line["event"] == kind]


def test_watch_follows_a_run_of_another_process(shell: Shell) -> None:
    """Changes and items come as they do there; the exit code is that of the outcome."""
    with shell.process(
        "run", "demo.count", "--arg", "to=30", "--arg", "delay=0.05", "--json"
    ) as process:
        run_id = run_id_of(process)
        watched = shell.call("watch", run_id, "--json")
        assert process.wait(20) == 0
    lines = [json.loads(line) for line in watched.stdout.splitlines()]
    assert watched.exit_code == 0
    assert lines[-1]["run"]["status"] == "succeeded"
    again = shell.json_lines("watch", run_id, "--after", lines[0]["cursor"])
    assert events(again, "export") == events(lines, "export")
    assert events(again, "change") == events(lines, "change")


def test_watch_of_what_has_ended_tells_the_outcome(shell: Shell) -> None:
    """There is nothing to wait for."""
    shell.call("run", "demo.fail")
    run_id = shell.runs()[0]["run_id"]
    result = shell.call("watch", run_id)
    assert result.exit_code == 1
    assert "DEMO_FAILED" in result.output
    wrong = shell.call("watch", run_id, "--after", "nowhere")
    assert wrong.exit_code == 2
    assert "invalid cursor" in wrong.stderr
