"""The lines that a server logs."""

from __future__ import annotations

import io
import json
import logging
import re

from perdure.runtime.server.server_logging import logging_to

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
