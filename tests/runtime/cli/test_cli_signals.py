"""Ctrl-C and SIGTERM while a command is still starting."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.repository.tree import ROOT
from tests.runtime.cli.terminal import Shell, wait_for_line

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
SOON = 15.0  # seconds until a command that starts has ended
RUN = ("run", "demo.count", "--arg", "to=1", "--arg", "delay=0")
NAP = ("run", "test.nap", "--arg", "seconds=60")
SERVE = ("serve", "--port", "0", "--json")

# The signal comes while a module is imported, and in a place where exceptions are swallowed.
SIGNAL_AT_IMPORT = """
import os, signal, sys

class Swallows:
    def __del__(self):
        signal.raise_signal(int(os.environ["SIGNAL"]))

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["WHILE_IMPORTING"]:
            sys.meta_path.remove(self)
            Swallows()

sys.meta_path.insert(0, Finder())
"""
OPENING = """
import trio
from perdure.runtime.runs import part

async def forever(*_):
    print("opening", flush=True)
    await trio.sleep_forever()

assert callable(part.drop_old_seals) and callable(part.recover)
part.drop_old_seals = part.recover = forever
"""
SIGNAL_AT_CREATION = """
import os, signal, trio.testing
from perdure.runtime.kernel.operations import Operations

call = Operations.call

async def interrupted(self, principal, name, request):
    answer = await call(self, principal, name, request)
    if name == "runs.create":
        signal.raise_signal(int(os.environ["SIGNAL"]))
        await trio.testing.wait_all_tasks_blocked()
    return answer

Operations.call = interrupted
"""


@contextmanager
def signaled_at_import(
    shell: Shell, module: str, number: signal.Signals, *words: str
) -> Iterator[subprocess.Popen[str]]:
    """A command that gets a signal while it imports a module."""
    Path("sitecustomize.py").write_text(SIGNAL_AT_IMPORT, "utf-8")
    path = os.pathsep.join([str(Path.cwd()), str(ROOT)])
    with shell.process(
        *words, PYTHONPATH=path, SIGNAL=str(int(number)), WHILE_IMPORTING=module
    ) as process:
        yield process


@BOTH
@pytest.mark.parametrize("words", [RUN, ("retry",), SERVE], ids=["run", "retry", "serve"])
@pytest.mark.parametrize(
    "module",
    [
        "perdure.runtime.cli.program",
        "perdure.runtime.plugins.loading",
        "perdure.runtime.kernel.local_node",
    ],
)
def test_the_first_signal_ends_a_command_that_is_still_being_imported(
    shell: Shell, module: str, words: tuple[str, ...], number: signal.Signals
) -> None:
    """The exit code is 130, nothing is said, and no run was begun."""
    if words == ("retry",):
        shell.call("run", "demo.fail")
        words = ("retry", shell.runs()[0]["run_id"])
    before = shell.runs()
    with signaled_at_import(shell, module, number, *words) as process:
        told = process.communicate(timeout=SOON)
    assert (process.returncode, *told) == (130, "", "")
    assert shell.runs() == before


@BOTH
def test_the_first_signal_stops_watching_that_has_not_begun(
    shell: Shell, number: signal.Signals
) -> None:
    """Also before the event loop of `perdure watch` hears it."""
    shell.call("run", "demo.fail")
    run_id = shell.runs()[0]["run_id"]
    module = "perdure.runtime.kernel.log_reader"
    with signaled_at_import(shell, module, number, "watch", run_id) as process:
        _, err = process.communicate(timeout=SOON)
    assert (process.returncode, err) == (130, "")


@BOTH
@pytest.mark.parametrize("words", [RUN, SERVE], ids=["run", "serve"])
def test_the_first_signal_ends_a_command_that_opens_the_log(
    shell: Shell, words: tuple[str, ...], number: signal.Signals
) -> None:
    """The exit code is 130; no run was begun, no server is announced, the log is free."""
    Path("opening.py").write_text(OPENING, "utf-8")
    with shell.process(*words, PERDURE_MODULES="opening") as process:
        wait_for_line(process, lambda line: line == "opening\n")
        process.send_signal(number)
        out, err = process.communicate(timeout=SOON)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert shell.runs() == []
    assert not (shell.data / "server.json").exists()
    assert shell.call(*RUN).exit_code == 0


@BOTH
def test_a_signal_while_the_run_is_created_asks_it_to_end(
    shell: Shell, number: signal.Signals
) -> None:
    """The run is in the log and ends as canceled, as if the signal had come later."""
    Path("creation.py").write_text(SIGNAL_AT_CREATION, "utf-8")
    with shell.process(
        *NAP, PERDURE_MODULES="tests.runtime.world,creation", SIGNAL=str(int(number))
    ) as process:
        out, _ = process.communicate(timeout=SOON)
    assert process.returncode == 3
    assert "Asked the run to end." in out
    assert [run["status"] for run in shell.runs()] == ["canceled"]
