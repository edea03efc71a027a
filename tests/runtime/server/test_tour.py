"""The README's five minutes, typed as they stand there."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.tree import ROOT
from tests.runtime.http.sse import Event, Parser

README = (ROOT / "README.md").read_text("utf-8")
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def events_in(path: Path) -> list[Event]:
    """The events that a file holds."""
    return Parser().feed(path.read_bytes())


@pytest.mark.needs("bash", "curl", "jq")
def test_the_tour_works(tmp_path: Path) -> None:
    """Start, follow, look back, kill, come back, cancel, stop: it all does what it says."""
    section = README.split("## Five minutes")[1].split("\n## ")[0]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = "\n".join(BLOCK.findall(section)).replace("7373", str(port))
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PERDURE_")}
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=tmp_path,
        env={**variables, "PERDURE_PORT": str(port)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [json.loads(each) for each in re.findall(r"\{\s*\"status\"[^}]*\}", done.stdout)]
    then, now = shown
    assert (then["status"], then["progress"]) == ("queued", None)
    assert (now["status"], now["progress"] > 0) == ("running", True)
    seen, rest = events_in(tmp_path / "seen.txt"), events_in(tmp_path / "rest.txt")
    assert rest[-1].kind == "end"
    ids = [event.last_id for event in (*seen, *rest[:-1])]
    assert len(ids) == len(set(ids))
    progress = [
        event.data["run"]["progress"]
        for event in (*seen, *rest)
        if event.kind == "run" and event.data["run"]["progress"]
    ]
    assert (sorted(set(progress)), progress[-1]) == (list(dict.fromkeys(progress)), 1.0)
    statuses = (tmp_path / "statuses.txt").read_text().split()
    assert statuses[-1] == '"status":"canceled"'
    assert '"cancel_requested"' in done.stdout
