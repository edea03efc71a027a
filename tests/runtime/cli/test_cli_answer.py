"""Answering what runs ask: on the terminal, and with `perdure answer`."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.runtime.cli.terminal import Shell, eventually, wait_for_line

ASKS = "The run asks: Shall I go on?"


@contextmanager
def serving(shell: Shell) -> Iterator[None]:
    """Let a server hold the log for the length of a block."""
    with shell.process("serve", "--port", "0", "--json") as server:
        wait_for_line(server, lambda line: line.startswith("{"))
        yield


def left_asking(shell: Shell, *words: str, times: int = 1) -> str:
    """Let a run ask, and end its process; give the id of the run."""
    with shell.process("run", *words) as process:
        for _ in range(times):
            wait_for_line(process, lambda line: "cannot be answered here" in line)
        process.send_signal(signal.SIGKILL)
        process.wait()
    return str(shell.runs()[0]["run_id"])


def exported(shell: Shell, run_id: str) -> list[object]:
    """What a run has put out."""
    return [item["json"] for item in shell.json_lines("export", run_id)]


def test_a_question_is_answered_on_the_terminal_through_a_server(shell: Shell) -> None:
    """The dialogue is the same, whoever executes the run."""
    with serving(shell):
        written = shell.on_a_terminal("run", "demo.ask", typed="[1, 2]\n")
        assert ASKS in written
        assert "json  [1,2]" in written
        assert "succeeded" in written


def test_a_question_is_answered_through_a_server(shell: Shell) -> None:
    """Elsewhere than where the run is watched, which is told; its text is shown meanwhile."""
    with serving(shell), shell.process("run", "demo.ask") as watching:
        line = wait_for_line(watching, lambda line: "cannot be answered here" in line)
        run_id = shell.runs()[0]["run_id"]
        assert f"perdure answer {run_id}" in line
        shown = shell.call("show", run_id).output
        assert "Shall I go on?" in shown
        assert f"Answer it:  perdure answer {run_id}" in shown
        told = shell.json("answer", run_id[:30], "yes")
        assert (told["run"]["run_id"], told["run"]["questions"]) == (run_id, [])
        assert watching.wait() == 0
        assert exported(shell, run_id) == ["yes"]
        late = shell.call("answer", run_id, "no")
        assert late.exit_code == 2
        assert "has no open questions" in late.stderr


def test_without_a_server_an_answer_is_written_here(shell: Shell) -> None:
    """And the run goes on with it when it is taken up."""
    run_id = left_asking(shell, "demo.ask")
    result = shell.call("answer", run_id, '{"go": true}')
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        'Answered: {"go":true}',
        f"Resume the run: perdure retry {run_id}",
    ]
    assert shell.call("retry", run_id).exit_code == 0
    assert exported(shell, run_id) == [{"go": True}]


def test_what_is_left_to_answer_is_asked_on_the_terminal(shell: Shell) -> None:
    """By `answer` without an answer, and by whoever goes on with the run."""
    run_id = left_asking(shell, "test.questions", "--arg", "n=2", times=2)
    first, second = shell.json("show", run_id)["run"]["questions"]
    written = shell.on_a_terminal("answer", run_id, "--question", first, typed="true\n")
    assert "The run asks: " in written
    assert "Answered: true" in written
    assert shell.json("show", run_id)["run"]["questions"] == [second]
    written = shell.on_a_terminal("retry", run_id, typed="5\n")
    assert written.count("The run asks: ") == 1
    assert "succeeded" in written


def test_one_line_answers_one_question(shell: Shell) -> None:
    """A run that asks several things at once is answered one after the other."""
    written = shell.on_a_terminal("run", "test.questions", "--arg", "n=2", typed="1\n2\n")
    assert written.count("The run asks: ") == 2
    assert "succeeded" in written


def test_of_several_questions_one_is_named(shell: Shell) -> None:
    """They are listed with what they ask; an id that fits none is refused."""
    run_id = left_asking(shell, "test.questions", "--arg", "n=2", times=2)
    open_ones = shell.json("show", run_id)["run"]["questions"]
    several = shell.call("answer", run_id, "1")
    assert several.exit_code == 2
    assert all(question_id in several.stderr for question_id in open_ones)
    assert "--question" in several.stderr
    none = shell.call("answer", run_id, "1", "--question", "x")
    assert none.exit_code == 2
    assert "no open question 'x'" in none.stderr
    nobody = shell.call("answer", run_id, "--question", open_ones[0], "--json")
    assert nobody.exit_code == 2
    assert json.loads(nobody.stderr)["error"]["code"] == "VALIDATION_ERROR"
    assert shell.json("answer", run_id, "1", "--question", open_ones[1])["run"]["questions"] == [
        open_ones[0]
    ]
    eventually(lambda: shell.json("show", run_id)["run"]["questions"] == [open_ones[0]])


def test_the_open_questions_are_completed(shell: Shell) -> None:
    """Tab knows what can be answered."""
    run_id = left_asking(shell, "demo.ask")
    (question,) = shell.json("show", run_id)["run"]["questions"]
    words = f"perdure answer {run_id} --question "
    done = shell.call(_PERDURE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD="4")
    assert question in done.output
