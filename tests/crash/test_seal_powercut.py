"""Power cuts while runs have sealed secrets: what the log holds to be sealed can be opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
import trio

from perdure.actors.run.events import RUN_EVENTS, RunCreated, RunEnded
from perdure.eventlog import EventLogError, RealEnv, SqliteStore, open_log
from perdure.runtime.runs.feature import open_run_node
from perdure.runtime.secrets.encryption import unsealed
from perdure.runtime.secrets.sealed_files import (
    KEY_FILE,
    SEALED_FOLDER,
    SealFolder,
    SecretsUnusable,
)
from perdure.runtime.secrets.secrets import open_secrets
from tests.crash.seal_child import PLUGINS, RUNS, token
from tests.crash.soundness import LOG_NAME, read
from tests.crash.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


def problems(directory: Path, said: Sequence[bytes]) -> Iterator[str]:
    """Say what was promised and is not there."""
    key_file = directory / KEY_FILE
    if key_file.exists():
        key_file.chmod(0o600)  # the disk of these tests has no modes
    try:
        store = SqliteStore.open(directory / LOG_NAME, env=RealEnv())
    except EventLogError as exc:
        yield f"the log cannot be opened: {exc!r}"
        return
    try:
        created, ended = _runs(store)
        yield from _broken_promises(said, created, ended)
        unfinished = {run_id: run for run_id, run in created.items() if run_id not in ended}
        yield from _lost_secrets(directory, unfinished)
        yield from trio.run(_after_start_up, directory, store, set(unfinished))
    finally:
        store.close()


def _runs(store: SqliteStore) -> tuple[dict[str, RunCreated], dict[str, RunEnded]]:
    created: dict[str, RunCreated] = {}
    ended: dict[str, RunEnded] = {}
    for record in read(store):
        event: Any = RUN_EVENTS.decode(record)
        if isinstance(event, RunCreated):
            created[event.run_id] = event
        elif isinstance(event, RunEnded):
            ended[record.stream.partition("/")[2]] = event
    return created, ended


def _broken_promises(
    said: Sequence[bytes], created: dict[str, RunCreated], ended: dict[str, RunEnded]
) -> Iterator[str]:
    for line in said:
        word, run_id = line.decode().split()
        if run_id not in (created if word == "ACK" else ended):
            yield f"{word} {run_id} was said, and is not in the log"
    for run_id, end in ended.items():
        if end.error is not None:
            yield f"run {run_id} has failed with {end.error.code}"


def _lost_secrets(directory: Path, unfinished: dict[str, RunCreated]) -> Iterator[str]:
    if not unfinished:
        return
    try:
        seals = SealFolder(directory)
        key = seals.existing_key()
    except SecretsUnusable as exc:
        yield f"the key is lost: {exc}"
        return
    for run_id, run in unfinished.items():
        data = seals.get(run_id)
        found = None if data is None or key is None else unsealed(key, run_id, data)
        if found != {"token": token(run.args["number"])}:
            yield f"the secret of run {run_id} is lost"


async def _after_start_up(directory: Path, store: SqliteStore, unfinished: set[str]) -> list[str]:
    """Start a node that takes up no run, and look which secrets it keeps."""
    env = RealEnv()
    try:
        secrets = open_secrets(env, directory, {})
    except SecretsUnusable as exc:
        return [f"nothing starts: {exc}"]
    async with (
        open_log(env, store) as log,
        open_run_node(log, PLUGINS, secrets=secrets, only=()),
    ):
        kept = set(await secrets.run_ids())
    return [f"what was sealed for run {run_id} is kept" for run_id in kept - unfinished]


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    """A place to record and rebuild."""
    return Workbench(tmp_path, "seal_child", problems)


@pytest.mark.parametrize("cuts", [pytest.param(40), pytest.param(10_000, marks=pytest.mark.soak)])
def test_no_power_cut_loses_the_secret_of_a_run_that_was_accepted(
    bench: Workbench, cuts: int, seed: int
) -> None:
    """Until its last event is in the log; then nothing keeps the secret past the next start."""
    assert bench.run() == 0
    assert (bench.said("ACK"), bench.said("END")) == (RUNS, RUNS)
    assert list((bench.directory / SEALED_FOLDER).iterdir()) == []
    assert bench.violations(cuts, seed) == []


@pytest.mark.parametrize(
    "mutant", ["without-directory-sync", "without-file-sync", "event-first", "dropped-early"]
)
def test_a_secret_that_is_sealed_too_late_or_dropped_too_early_is_found_out(
    bench: Workbench, mutant: str, seed: int
) -> None:
    """Without one of the syncs, or in another order, some power cut takes a secret away."""
    assert bench.run("--mutant", mutant) == 0
    violations = bench.each_violation(150, seed)
    assert any("is lost" in found or "is missing" in found for found in violations), f"seed {seed}"


# Among the syncs of the key, the directories and the first seals.
KILLS: Final = (4, 7, *(pytest.param(n, marks=pytest.mark.soak) for n in (2, 3, 5, 6, 8, 9, 10)))


@pytest.mark.parametrize("when", KILLS)
def test_what_a_killed_process_left_is_synced_by_the_next(
    bench: Workbench, when: int, seed: int
) -> None:
    """A key or a directory that is found may never have been synced: it is, before it is used."""
    first = bench.run_after_kill(when)
    assert bench.said("ACK") >= RUNS
    assert bench.violations(100, seed, first=first) == []
