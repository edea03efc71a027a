"""The lines that a server logs."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path

import pytest

from perdure.runtime.server.server_logging import logging_to
from tests.repository.tree import ROOT
from tests.runtime.server.process import server

LOG = logging.getLogger("perdure.test-of-lines")


class Terminal(io.StringIO):
    """A stream that people look at."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def log_some() -> None:
    """Log a line, and an error of a run."""
    LOG.info("started %d", 1)
    try:
        dict[str, int]()["oops"]
    except KeyError:
        LOG.exception("run broke", extra={"run_id": "r1", "odd": object})


def test_lines_are_json_where_programs_read() -> None:
    """One object a line, with the run that it is about and the traceback."""
    stream = io.StringIO()
    with logging_to(stream):
        log_some()
    LOG.info("not any more")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["level"], first["message"]) == ("info", "started 1")
    assert first["logger"] == "perdure.test-of-lines"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", first["time"])
    assert (second["run_id"], second["level"]) == ("r1", "error")
    assert second["traceback"].endswith("KeyError: 'oops'")


def test_lines_are_for_people_on_a_terminal() -> None:
    """When, how bad, what, and of which run."""
    stream = Terminal()
    with logging_to(stream):
        log_some()
    lines = stream.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d info    started 1", lines[0])
    assert lines[1].endswith("error   run broke  [r1]")
    assert lines[-1] == "KeyError: 'oops'"


@pytest.mark.parametrize("entry_id", ["inline", "threaded"])
def test_what_entries_print_is_in_their_logs_and_not_on_the_servers_output(
    tmp_path: Path, entry_id: str
) -> None:
    """Printed, warned, logged, raised in a thread: each line once, without the secret (R119)."""
    secret = "correct-horse-battery"  # noqa: S105 - the point
    module = "tests.runtime.server.printing_plugin"
    options = {"PERDURE_MODULES": module, "PYTHONPATH": str(ROOT)}
    with server(tmp_path / "data", **options) as running:
        body = {"plugin_id": "printing", "entry_id": entry_id, "args": {"token": secret}}
        run_id = running.post("/runs", body)["run_id"]
        assert running.until(run_id, "succeeded", "failed")["status"] == "succeeded"
        logged = running.get(f"/runs/{run_id}/logs")["lines"]
        running.signal()
        assert running.process.stdout is not None
        output = running.process.stdout.read().decode() + running.errors.read_text()
        running.wait()
    said = [line["text"] for line in logged]
    for text in ("printed", "printed as an error", "printed bytes", "logged"):
        assert said.count(f"{text} [redacted]") == 2
    assert sum("warned of [redacted]" in text for text in said) >= 1  # Python tells it once
    assert "Exception in thread of the entry:" in said
    assert "ValueError: raised [redacted]" in said
    assert secret not in output + str(logged)
    assert "printed" not in output
