"""Watching a run of another process, and what becomes of it when that process is gone."""

from __future__ import annotations

import json
import signal

import pytest

from tests.runtime.cli.terminal import PATIENCE, Shell, wait_for_line
from tests.runtime.cli.test_cli_run import WORKING, run_id_of

NAP = ("run", "test.nap", "--arg", "seconds=60")


@pytest.mark.parametrize("output", [(), ("--json",)])
def test_a_server_that_is_killed_is_told_to_whoever_watches(
    shell: Shell, output: tuple[str, ...]
) -> None:
    """`run` and `watch` say that nobody is at work on it, and how to go on; they never hang."""
    with shell.process("serve", "--port", "0", "--json") as server:
        wait_for_line(server, lambda line: "url" in line)
        with shell.process(*NAP, *output) as running:
            wait_for_line(running, lambda line: "running" in line)
            run_id = shell.runs()[0]["run_id"]
            with shell.process("watch", run_id, *output) as watching:
                wait_for_line(watching, lambda line: run_id in line)
                server.kill()
                for process in (running, watching):
                    _, err = process.communicate(timeout=PATIENCE)
                    assert process.returncode == 5
                    assert "No process is at work on this log any more" in err
                    assert f"perdure retry {run_id}" in err
                    assert not output or json.loads(err.splitlines()[-1])["error"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_watching_and_not_the_run(shell: Shell, number: signal.Signals) -> None:
    """The run goes on; the exit code says that no end was seen."""
    with shell.process(*WORKING) as process:
        run_id = run_id_of(process)
        with shell.process("watch", run_id) as watching:
            wait_for_line(watching, lambda line: "working" in line)
            watching.send_signal(number)
            out, err = watching.communicate()
        assert (watching.returncode, err) == (130, "")
        assert "the run continues" in out
        assert process.wait(30) == 0


def test_stopping_to_watch_a_run_that_no_process_executes_says_so(shell: Shell) -> None:
    """Nothing claims that the run goes on; the command that resumes it is named."""
    with shell.process(*WORKING) as process:
        run_id = run_id_of(process)
        process.kill()
        process.wait()
    with shell.process("watch", run_id) as watching:
        wait_for_line(watching, lambda line: "No process is at work" in line)
        wait_for_line(watching, lambda line: f"perdure retry {run_id}" in line)
        watching.send_signal(signal.SIGINT)
        out, err = watching.communicate()
    assert (watching.returncode, err) == (130, "")
    assert out == f"Stopped watching. Resume the run: perdure retry {run_id}\n"
