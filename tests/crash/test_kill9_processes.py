from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest

from perdure.actors.run.events import ExportAppended, RunEnded
from perdure.runtime.blobs.blob import blob_at
from tests.crash.child import PATIENCE, Child
from tests.crash.process_child import MARK
from tests.crash.soundness import LOG_NAME
from tests.crash.test_kill9_runs import accepted, histories

WORKER = "process_child:Crashing"  # on the command line of ours, and of nobody else's


def processes(mark: str) -> list[int]:
    """The processes of this interpreter whose command line holds a mark."""
    found = subprocess.run(
        ["ps", "-eww", "-o", "pid,args"], capture_output=True, text=True, check=True
    )
    lines = [line.split(maxsplit=1) for line in found.stdout.splitlines()]
    return [
        int(line[0])
        for line in lines
        if mark in line[-1] and sys.executable in line[-1] and "perdure-guard" not in line[-1]
    ]


def strike(victim: str, child: Child, rng: random.Random) -> None:
    """Kill the server, the process of an entry, or what the process has started."""
    if victim == "server":
        child.kill()
        return
    mark = {"worker": WORKER, "grandchild": MARK}[victim]
    candidates = processes(mark)
    if candidates:
        with suppress(ProcessLookupError):
            os.kill(rng.choice(candidates), signal.SIGKILL)


def all_gone(within: float) -> list[int]:
    """Wait until no process of ours is left; give those that are."""
    deadline = time.monotonic() + within
    while left := [*processes(MARK), *processes(WORKER)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return []


def is_whole(directory: Path, url: str | None, run_id: str) -> bool:
    """Whether a blob is on disk as an entry of this run gave it."""
    blob = blob_at(url or "")
    assert blob is not None
    digest = blob.sha256
    data = Path(directory, "scopes", run_id, "sha256", digest[:2], digest[2:4] + digest[4:])
    content = data.read_bytes()
    return sha256(content).hexdigest() == digest and content.startswith(run_id.encode())


@pytest.mark.parametrize("victim", ["server", "worker", "grandchild"])
@pytest.mark.parametrize("rounds", [pytest.param(2), pytest.param(100, marks=pytest.mark.soak)])
def test_nothing_is_left_and_every_run_ends(tmp_path: Path, victim: str, rounds: int) -> None:
    """Whoever is killed: no orphan, no run without an end (R33, R111).

    What was exported is there, every byte of it; of what was not, no draft is left.
    """
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    runs: set[str] = set()
    for _ in range(rounds):
        with Child("process_child", tmp_path) as child:
            child.wait_for_ack()
            time.sleep(rng.uniform(0.1, 0.6))
            strike(victim, child, rng)
            if victim != "server":
                time.sleep(rng.uniform(0.0, 0.3))
                child.kill()
            runs |= accepted(child)
        assert all_gone(within=10) == [], f"seed {seed}"
    with Child("process_child", tmp_path, "--finish") as child:
        assert child.wait(PATIENCE + 3 * rounds) == 0, f"seed {seed}"  # many are left to do
    assert all_gone(within=10) == [], f"seed {seed}"
    found = histories(tmp_path / LOG_NAME)
    assert runs <= found.keys()
    succeeded = [events for events in found.values() if events[-1].error is None]
    assert len(succeeded) > rounds / 2, f"seed {seed}: most runs never got anywhere"
    assert list((tmp_path / "scopes" / ".drafts").iterdir()) == [], f"seed {seed}"
    for run_id, events in found.items():
        exported = [event for event in events if isinstance(event, ExportAppended)]
        blobs = [event.binary_url for event in exported if event.type == "binary_url"]
        assert all(is_whole(tmp_path, url, run_id) for url in blobs), f"seed {seed}: {run_id}"
        assert len(set(blobs)) == len(blobs), f"seed {seed}: {run_id}"
        assert events[-1].error is not None or len(blobs) == 3, f"seed {seed}: {run_id}"
        ends = [event for event in events if isinstance(event, RunEnded)]
        assert len(ends) == 1, f"seed {seed}: {run_id}"
        error = ends[0].error
        assert error is None or error.code in {"PLUGIN_CRASHED", "HOST_LOST"}, f"seed {seed}"
