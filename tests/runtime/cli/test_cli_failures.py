"""What the command line shows of a run that has failed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, cast

import pytest

from perdure.runtime.kernel.completion import completed
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.runs.commands.outcome import outcome, traceback_of
from tests.runtime.cli.terminal import Shell

if TYPE_CHECKING:
    from perdure.actors.run.views import RunRecord
    from perdure.runtime.client.client import Caller

RUN: dict[str, Any] = {"run_id": "r", "status": "failed", "started_at": 1.0, "finished_at": 2.0}

FAILING = """
from perdure import PluginError, RunContext, entry, plugin

def divide(by: int) -> float:
    return 1 / by

@plugin("failing")
class Failing:
    @entry
    async def go(self, ctx: RunContext) -> None:
        for number in range(50):
            ctx.run.log(f"line {number}")
        divide(0)

    @entry
    async def on_purpose(self, ctx: RunContext, retriable: bool) -> None:
        raise PluginError("BUSY", "no", details={"file": 5}, retriable=retriable)
"""


@pytest.fixture
def failing(shell: Shell, plugins_on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell in a folder with a plugin that fails."""
    (plugins_on_disk / "failing.py").write_text(FAILING, "utf-8")
    monkeypatch.syspath_prepend(plugins_on_disk)
    return shell


def test_a_failed_run_shows_where_it_failed(failing: Shell) -> None:
    """File, line and the end of the traceback, without looking into the log; watch does, too."""
    result = failing.call("run", "failing.go", PERDURE_MODULES="failing")
    assert result.exit_code == 1
    run_id = failing.runs()[0]["run_id"]
    shown = result.output[result.output.index("✗ failed") :].splitlines()
    assert shown[1:] == [
        "  PLUGIN_ERROR: ZeroDivisionError: division by zero  (failing.py, line 5)",
        *shown[2:4],
        "        divide(0)",
        *shown[5:6],
        "        return 1 / by",
        "    ZeroDivisionError: division by zero",
        f"  Its log:   perdure logs {run_id}",
        f"  Try again: perdure retry {run_id}",
    ]
    assert "Traceback" in shown[2]
    assert 'failing.py", line 13, in go' in shown[3]
    assert 'failing.py", line 5, in divide' in shown[5]
    assert failing.call("watch", run_id).output.endswith("\n".join(shown[1:]) + "\n")


@pytest.mark.parametrize(
    ("retriable", "hint"), [("true", "  (it may be temporary)"), ("false", "")]
)
def test_only_what_may_be_temporary_is_called_so(failing: Shell, retriable: str, hint: str) -> None:
    """As the error itself says; what was raised on purpose has no traceback."""
    words = ("run", "failing.on_purpose", "--arg", f"retriable={retriable}")
    output = failing.call(*words, PERDURE_MODULES="failing").output
    run_id = failing.runs()[0]["run_id"]
    assert output.endswith(f"  BUSY: no\n  Try again: perdure retry {run_id}{hint}\n")


def test_what_needs_somebody_to_do_something_is_not_temporary() -> None:
    """A plugin that is not loaded, or a run that was given up, is not better a moment later."""
    for code in ("NOT_READY", "HOST_LOST"):
        error = {"code": code, "message": "m", "details": None, "retriable": True}
        assert "temporary" not in "".join(outcome(cast("RunRecord", RUN | {"error": error})))


def test_an_error_cannot_steer_the_terminal() -> None:
    """Neither its code, nor its message, nor its traceback."""
    error = {"code": "\x1b[2J", "message": "\x1b[2J", "details": None, "retriable": False}
    shown = "".join(outcome(cast("RunRecord", RUN | {"error": error}), 'x\n  File "\x1b[2J"'))
    assert "\x1b[2J" not in shown


def test_a_server_of_an_earlier_release_shows_no_traceback() -> None:
    """It does not know how to be asked; nothing else is missing."""

    class Earlier:
        async def call(self, name: str, request: object) -> Never:
            raise OperationError("VALIDATION_ERROR", "no such field: last")

    run = cast("RunRecord", RUN | {"error": None})
    assert completed(traceback_of(cast("Caller", Earlier()), run)) is None
