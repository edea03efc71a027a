"""Output that nobody reads any more: a pipe that was closed, a terminal that is gone."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perdure.runtime.kernel.announcement import find_server
from perdure.runtime.kernel.data_directory import DataDir
from tests.runtime.cli.terminal import COMMAND, PATIENCE, Shell, eventually, wait_for_line

COUNT = ("run", "demo.count", "--arg", "to=30", "--arg", "delay=0.02")
PRINTS = """
import trio
from perdure import RunContext, entry, plugin

@plugin("prints")
class Prints:
    @entry
    async def lines(self, ctx: RunContext) -> None:
        for number in range(20):
            print(number, flush=True)
            await trio.sleep(0.01)
"""


def unread(shell: Shell, *words: str, errors: bool = True, **more: str) -> subprocess.Popen[bytes]:
    """Start a command whose output nobody reads, maybe not even its errors."""
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [str(COMMAND), *words],
        env=shell.environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.PIPE if errors else writing,
    )
    os.close(writing)
    return process


def closed(shell: Shell, *words: str) -> subprocess.Popen[bytes]:
    """Start a command without standard output and standard error."""
    command = f"exec {COMMAND} {' '.join(words)} >&- 2>&-"
    return subprocess.Popen(["sh", "-c", command], env=shell.environment())


def statuses(shell: Shell) -> list[Any]:
    """How the runs in the log stand."""
    return [run["status"] for run in shell.runs()]


@pytest.mark.parametrize("output", [(), ("--json",)], ids=["plain", "json"])
def test_a_run_whose_output_is_closed_is_executed_to_its_end(
    shell: Shell, output: tuple[str, ...]
) -> None:
    """`perdure run ... | head -1`: quietly, and the exit code is that of the outcome."""
    with shell.process(*COUNT, *output) as process:
        wait_for_line(process, lambda line: "demo" in line)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(PATIENCE) == 0
        assert process.stderr.read() == ""
    assert statuses(shell) == ["succeeded"]


@pytest.mark.parametrize("output", [(), ("--json",)], ids=["plain", "json"])
def test_a_run_needs_neither_output_nor_errors(shell: Shell, output: tuple[str, ...]) -> None:
    """With both of them closed from the start, its outcome is still told by the exit code."""
    words = ("run", "demo.fail", *output)
    assert unread(shell, *words, errors=False).wait(PATIENCE) == 1
    assert statuses(shell) == ["failed"]
    assert closed(shell, *words).wait(PATIENCE) == 1
    assert statuses(shell) == ["failed", "failed"]


def test_a_run_whose_terminal_is_gone_is_executed_to_its_end(shell: Shell) -> None:
    """As with nohup: the bar is not shown any more, and the run goes on."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(COMMAND), *COUNT],
        env=shell.environment(TERM="xterm-256color"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    while b"counted to" not in seen:
        seen += os.read(ours, 4096)
    os.close(ours)
    assert process.wait(PATIENCE) == 0
    assert statuses(shell) == ["succeeded"]


def test_an_entry_may_print_where_nobody_reads(shell: Shell) -> None:
    """What it prints is dropped with all other output; it is no reason to fail."""
    Path("prints.py").write_text(PRINTS, "utf-8")
    process = unread(shell, "run", "prints.lines", PERDURE_MODULES="prints")
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, b"")
    assert statuses(shell) == ["succeeded"]


@pytest.mark.parametrize("how", ["unread", "closed"])
def test_a_server_whose_greeting_nobody_reads_serves(shell: Shell, how: str) -> None:
    """`perdure serve 2>&1 | true`: it can be asked, and goes down in good order."""
    words = ("serve", "--port", "0")
    process = closed(shell, *words) if how == "closed" else unread(shell, *words, errors=False)
    try:
        data = DataDir(shell.data)
        eventually(lambda: process.poll() is not None or find_server(data) is not None)
        assert shell.call(*COUNT[:2], "--arg", "to=1").exit_code == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "words", [("runs",), ("runs", "--json"), ("show", "RUN"), ("watch", "RUN"), ("plugins",)]
)
def test_a_command_that_reads_ends_by_sigpipe(shell: Shell, words: tuple[str, ...]) -> None:
    """`perdure runs | head -1`: silently, as other programs do."""
    shell.call("run", "demo.fail")
    run_id = shell.runs()[0]["run_id"]
    process = unread(shell, *(run_id if word == "RUN" else word for word in words))
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (-signal.SIGPIPE, b"")


@pytest.mark.parametrize("words", [("show", "nothing"), ("runs", "--wrong")])
def test_an_error_that_nobody_reads_ends_by_sigpipe(shell: Shell, words: tuple[str, ...]) -> None:
    """`perdure show nothing 2>&1 | true`: without a traceback that nobody would read either."""
    process = unread(shell, *words, errors=False)
    assert process.wait(PATIENCE) == -signal.SIGPIPE


@pytest.mark.parametrize("output", [(), ("--json",)], ids=["plain", "json"])
def test_a_run_that_a_server_executes_goes_on_without_its_watcher(
    shell: Shell, output: tuple[str, ...]
) -> None:
    """The command that only watches ends by SIGPIPE, without a word; the run has its server."""
    with shell.process("serve", "--port", "0", "--json") as server:
        wait_for_line(server, lambda line: "url" in line)
        with shell.process(*COUNT, *output) as process:
            wait_for_line(process, lambda line: "counted" in line)
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.wait(PATIENCE) == -signal.SIGPIPE
            assert "rror" not in process.stderr.read()
        eventually(lambda: statuses(shell) == ["succeeded"])


@pytest.mark.parametrize(
    "words", [("runs",), ("runs", "--json"), ("plugins",), ("config",), ("--help",), ("--version",)]
)
def test_output_that_cannot_be_written_is_named(shell: Shell, words: tuple[str, ...]) -> None:
    """A full disk under the output is no fault of the data directory."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [str(COMMAND), *words],
            env=shell.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 5, done.stderr
    assert "standard output: No space left on device." in done.stderr
    assert "Send the output elsewhere" in done.stderr
    assert "--data-dir" not in done.stderr
    assert "Traceback" not in done.stderr
