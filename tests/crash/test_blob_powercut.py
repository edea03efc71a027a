"""Power cuts while blobs are written: what the log names is there."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

import pytest

from perdure.actors.run.events import RUN_EVENTS, ExportAppended
from perdure.eventlog import EventLogError, RealEnv, SqliteStore
from perdure.runtime.blobs.blob import Blob, blob_at
from perdure.runtime.blobs.file_depot import FileDepot
from tests.crash.blob_child import EXPORTS, RUNS
from tests.crash.soundness import LOG_NAME, read
from tests.crash.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


def problems(directory: Path, said: Sequence[bytes]) -> Iterator[str]:
    """Say what was promised and is not there."""
    try:
        store = SqliteStore.open(directory / LOG_NAME, env=RealEnv())
    except EventLogError as exc:
        yield f"the log cannot be opened: {exc!r}"
        return
    try:
        named = {blob for record in read(store) for blob in _exported(record.name, record)}
    finally:
        store.close()
    for line in said:
        _, scope, digest = line.decode().split()
        if Blob(scope, digest) not in named:
            yield f"the export of {digest} is lost"
    for blob in named:
        try:
            content = FileDepot(directory).open(blob)
        except FileNotFoundError:
            yield f"{blob.url} is lost"
            continue
        data = content.read(0, content.size)
        content.close()
        if sha256(data).hexdigest() != blob.sha256:
            yield f"{blob.url} is damaged"


def _exported(name: str, record: object) -> Iterator[Blob]:
    if name == ExportAppended.event_name:
        export: ExportAppended = RUN_EVENTS.decode(record)  # type: ignore[arg-type]
        blob = blob_at(export.binary_url or "")
        if blob is not None:
            yield blob


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    """A place to record and rebuild."""
    return Workbench(tmp_path, "blob_child", problems)


@pytest.mark.parametrize("cuts", [pytest.param(50), pytest.param(10_000, marks=pytest.mark.soak)])
def test_no_power_cut_loses_a_blob_that_an_event_names(
    bench: Workbench, cuts: int, seed: int
) -> None:
    """Wherever the power is cut, what was exported is in the log and on the disk, every byte."""
    assert bench.run() == 0
    assert bench.said() == RUNS * EXPORTS
    assert bench.violations(cuts, seed) == []


@pytest.mark.parametrize("mutant", ["without-directory-sync", "without-file-sync", "event-first"])
def test_a_blob_that_is_named_too_early_is_found_out(
    bench: Workbench, mutant: str, seed: int
) -> None:
    """Without one of the syncs, or with the event first, some power cut takes a blob away."""
    assert bench.run("--mutant", mutant) == 0
    violations = bench.each_violation(150, seed)
    assert any("is lost" in v or "is damaged" in v for v in violations), f"seed {seed}"


# Among the syncs of files and directories of the first blobs.
KILLS: Final = (4, 9, *(pytest.param(n, marks=pytest.mark.soak) for n in (2, 3, 5, 6, 7, 8, 10)))


@pytest.mark.parametrize("when", KILLS)
def test_what_a_killed_process_left_is_synced_by_the_next(
    bench: Workbench, when: int, seed: int
) -> None:
    """A directory or a blob that is found may never have been synced: it is, before it is named."""
    first = bench.run_after_kill(when)
    assert bench.said() >= RUNS * EXPORTS - 1
    assert bench.violations(100, seed, first=first) == []


def test_a_process_that_trusts_what_it_finds_is_found_out(tmp_path: Path, seed: int) -> None:
    """If directories that exist are taken for synced, a kill and a power cut lose a blob."""
    for when in (4, 8, 5, 9, 7, 6, 11, 10, 3, 2):  # where it was found most often first
        scratch = tmp_path / str(when)
        scratch.mkdir()
        bench = Workbench(scratch, "blob_child", problems)
        first = bench.run_after_kill(when, "--mutant", "trusting")
        if any(bench.each_violation(60, seed, first=first)):
            return
    pytest.fail(f"seed {seed}: nothing was lost")
