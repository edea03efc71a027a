"""The README's five minutes, typed as they stand there."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.runtime.kernel.settings import ServerSettings
from tests.repository.tree import ROOT
from tests.runtime.http.sse import Event, Parser

README = (ROOT / "README.md").read_text("utf-8")
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def events_in(path: Path) -> list[Event]:
    """The events that a file holds."""
    return Parser().feed(path.read_bytes())


@contextmanager
def usual_port_taken() -> Iterator[None]:
    """Let something else have the port that servers use, unless something else has it already."""
    try:
        other = socket.create_server(("127.0.0.1", ServerSettings().port))
    except OSError:
        yield
        return
    with other:
        yield


def test_what_the_tour_needs_is_named() -> None:
    """Before anybody begins with it."""
    needed = README.split("## Two commands")[1].split("```")[0]
    assert all(program in needed for program in ("python3", "pip", "make", "git", "curl", "jq"))


@pytest.mark.needs("bash", "curl", "jq")
def test_the_tour_works(tmp_path: Path) -> None:
    """Start, follow, look back, kill, come back, cancel, stop: it all does what it says.

    Also while another server has the usual port, and nothing is left in the repository.
    """
    section = README.split("## Five minutes")[1].split("\n## ")[0]
    script = "\n".join(BLOCK.findall(section))
    repository, place = tmp_path / "repository", tmp_path / "place"
    place.mkdir()
    (repository / ".venv").mkdir(parents=True)
    (repository / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PERDURE_")}
    with usual_port_taken():
        done = subprocess.run(
            ["bash", "-euc", script],
            cwd=repository,
            env={**variables, "TMPDIR": str(place)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in repository.iterdir()] == [".venv"]
    (directory,) = place.iterdir()
    shown = [json.loads(each) for each in re.findall(r"\{\s*\"status\"[^}]*\}", done.stdout)]
    then, now = shown
    assert (then["status"], then["progress"]) == ("queued", None)
    assert (now["status"], now["progress"] > 0) == ("running", True)
    seen, rest = events_in(directory / "seen.txt"), events_in(directory / "rest.txt")
    ends = re.findall(r'^{.*"what":"deactivated".*"how":"(\w+)"}$', done.stdout, re.MULTILINE)
    assert ends == ["lost", "ended"]
    assert rest[-1].kind == "end"
    ids = [event.last_id for event in (*seen, *rest[:-1])]
    assert len(ids) == len(set(ids))
    progress = [
        event.data["run"]["progress"]
        for event in (*seen, *rest)
        if event.kind == "run" and event.data["run"]["progress"]
    ]
    assert (sorted(set(progress)), progress[-1]) == (list(dict.fromkeys(progress)), 1.0)
    statuses = (directory / "statuses.txt").read_text().split()
    assert statuses[-1] == '"status":"canceled"'
    assert '"cancel_requested"' in done.stdout
