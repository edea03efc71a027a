from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.actors.run.events import RUN_EVENTS, Activated, ExportAppended, RunEnded
from perdure.eventlog import RealEnv, SqliteStore
from tests.crash.child import Child
from tests.crash.running_child import BODIES, STEPS
from tests.crash.soundness import LOG_NAME, read


def accepted(child: Child) -> set[str]:
    """The runs that a child has said it accepted."""
    words = [line.split() for line in child.lines]
    return {word[1].decode() for word in words if word[0] == b"ACK"}


def histories(path: Path) -> dict[str, list[Any]]:
    """The events of every run in a log."""
    store = SqliteStore.open(path, env=RealEnv())
    found: dict[str, list[Any]] = {}
    for record in read(store):
        if record.stream.startswith("run/"):
            found.setdefault(record.stream.removeprefix("run/"), []).append(
                RUN_EVENTS.decode(record)
            )
    store.close()
    return found


def problems(run_id: str, events: list[Any], lives: dict[str, list[str]]) -> Iterator[str]:
    """Say what is wrong with the history of a run, and with the lives that began its steps."""
    if [type(event) for event in events].count(RunEnded) != 1:
        yield f"{run_id} has not exactly one end"
        return
    for number in range(STEPS):
        begun = lives.get(f"{run_id} {number}", [])
        if len(begun) != len(set(begun)):  # a kill lies between any two
            yield f"{run_id} began step {number} twice in one life"
    end = events[-1]
    if not isinstance(end, RunEnded) or end.outcome.value != "succeeded":
        yield f"{run_id} ended {end}"
        return
    texts = [event.text for event in events if isinstance(event, ExportAppended) and event.text]
    steps = ["did a step"] * STEPS
    if texts not in (steps, [f"plain {n % 2}" for n in range(STEPS)]):
        yield f"{run_id} exported {texts}"
    if texts == steps and not all(lives.get(f"{run_id} {number}") for number in range(STEPS)):
        yield f"{run_id} did not begin all of its steps"


@pytest.mark.parametrize("kills", [pytest.param(3), pytest.param(200, marks=pytest.mark.soak)])
def test_kill_9_under_two_hundred_runs(tmp_path: Path, kills: int) -> None:
    """Every accepted run ends once; bodies once, and once more a kill; exports once (R32, R33)."""
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    runs: set[str] = set()
    for _ in range(kills):
        with Child("running_child", tmp_path) as child:
            child.wait_for_ack()
            time.sleep(rng.uniform(0.0, 0.4))
            child.kill()
            runs |= accepted(child)
    with Child("running_child", tmp_path, "--finish") as child:
        assert child.wait() == 0, f"seed {seed}"
    found = histories(tmp_path / LOG_NAME)
    lives: dict[str, list[str]] = {}
    for line in (tmp_path / BODIES).read_text().splitlines():
        life, _, step = line.partition(" ")
        lives.setdefault(step, []).append(life)
    assert runs - found.keys() == set(), f"seed {seed}: accepted runs are lost"
    wrong = [
        problem for run_id, events in found.items() for problem in problems(run_id, events, lives)
    ]
    assert wrong == [], f"seed {seed}"
    assert len(runs) > 10 * kills


@pytest.mark.parametrize(
    ("entry_id", "kills"),
    [
        pytest.param("climb", 4),
        pytest.param("climb", 30, marks=pytest.mark.soak),
        pytest.param("one_step", 30, marks=pytest.mark.soak),
    ],
)
def test_a_long_run_survives_kills_of_its_server(tmp_path: Path, entry_id: str, kills: int) -> None:
    """Each while its entry is at work; whether it reports progress or not, it succeeds (R33)."""
    rng = random.Random(0)
    for life in range(kills):
        with Child("long_child", tmp_path, entry_id, *["--finish"] * (life > 0)) as child:
            child.wait_for_ack()
            time.sleep(rng.uniform(0.0, 0.4))
            child.kill()
    with Child("long_child", tmp_path, entry_id, "--finish") as child:
        assert child.wait() == 0
    (events,) = histories(tmp_path / LOG_NAME).values()
    assert sum(isinstance(event, Activated) for event in events) == kills + 1
    assert events[-1].outcome.value == "succeeded"
