"""The command line as people use it: in this process, in one of its own, on a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from perdure.runtime.cli.program import main
from tests.repository.tree import ROOT

COMMAND = Path(sys.executable).with_name("perdure")
PATIENCE = 30.0
EXAMPLE = "tests.runtime.world"  # the module of a plugin that does a bit of everything


class Shell:
    """A directory to work in, and the command."""

    def __init__(self, home: Path) -> None:
        """Keep the log in a directory."""
        self.data = home / "data"

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of commands, without that of whoever runs the tests."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PERDURE_") and name not in {"COLUMNS", "NO_COLOR", "TERM"}
        }
        ours = {
            "PERDURE_DATA_DIR": str(self.data),
            "PERDURE_MODULES": EXAMPLE,
            "PYTHONPATH": str(ROOT),
            "TZ": "UTC",
        }
        return kept | ours | more

    def call(self, *words: str, **more: str) -> Result:
        """Run a command in this process."""
        gone: dict[str, str | None] = dict.fromkeys(("COLUMNS", "NO_COLOR"))
        runner = CliRunner(env=gone | self.environment(**more))
        result = runner.invoke(main, list(words), prog_name="perdure")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def json(self, *words: str, **more: str) -> Any:
        """Run a command that gives one object."""
        result = self.call(*words, "--json", **more)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def json_lines(self, *words: str, **more: str) -> list[Any]:
        """Run a command that gives an object a line."""
        return [
            json.loads(line) for line in self.call(*words, "--json", **more).stdout.splitlines()
        ]

    def runs(self) -> list[Any]:
        """All runs, newest first."""
        found: list[Any] = self.json("runs")["runs"]
        return found

    @contextmanager
    def process(self, *words: str, **more: str) -> Iterator[subprocess.Popen[str]]:
        """Start a command in a process of its own, which ends with the block."""
        process = subprocess.Popen(
            [str(COMMAND), *words],
            env=self.environment(PYTHONUNBUFFERED="1", **more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def on_a_terminal(self, *words: str, columns: int = 80, typed: str = "", **more: str) -> str:
        """Run a command on a terminal and type something; give all that it wrote."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [str(COMMAND), *words],
            env=self.environment(TERM="xterm-256color", COLUMNS=str(columns), **more),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        os.write(ours, typed.encode())
        written = b""
        try:
            while piece := os.read(ours, 4096):
                written += piece
        except OSError:
            pass  # the other side is closed
        finally:
            os.close(ours)
            process.wait(PATIENCE)
        return written.decode()


def wait_for_line(process: subprocess.Popen[str], has: Callable[[str], bool]) -> str:
    """Read a process's output until a line that is wanted; end a process that never says it."""
    assert process.stdout is not None
    impatient = threading.Timer(PATIENCE, process.kill)
    impatient.start()
    try:
        for line in process.stdout:
            if has(line):
                return line
    finally:
        impatient.cancel()
    raise AssertionError(f"it ended with {process.wait()} before it said what it was to say")


def eventually(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, "it never came to be so"
        time.sleep(0.05)
