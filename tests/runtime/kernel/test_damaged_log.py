"""A node on a log that the disk has changed: one damaged run hurts only itself."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.eventlog.errors import LogCutShort
from perdure.runtime.features import FEATURES
from perdure.runtime.kernel.completion import completed
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.log_reader import open_reader
from perdure.runtime.kernel.principal import LOCAL
from tests.runtime.kernel.test_log_reader import ended, node

CHANGE = "UPDATE events SET event_time = event_time + 1 WHERE originator_id = ?"
CACHES = ("runs.db", "references.db", "snapshots.db")


def spoil(directory: Path, run_id: str) -> None:
    """Change all records of a run behind the log's back."""
    with closing(sqlite3.connect(directory / "log.db", isolation_level=None)) as database:
        database.execute("DROP TRIGGER events_are_never_changed")
        database.execute(CHANGE, (f"run/{run_id}",))


def forget(directory: Path) -> None:
    """Throw away everything that is folded from the log."""
    for name in CACHES:
        for path in directory.glob(f"{name}*"):
            path.unlink()


@pytest.mark.parametrize("rebuilt", [False, True])
async def test_one_damaged_run_hurts_only_itself(tmp_path: Path, *, rebuilt: bool) -> None:
    """Others are read, listed and executed, by lists that were built before and by new ones."""
    async with node(tmp_path) as opened:
        sound, damaged = [await ended(opened, "exports"), await ended(opened, "exports")]
    spoil(tmp_path, damaged)
    if rebuilt:
        forget(tmp_path)
    else:
        (tmp_path / "snapshots.db").unlink()
    async with node(tmp_path) as opened:
        call = opened.operations.call
        assert (await call(LOCAL, "runs.get", {"run_id": sound}))["run"]["run_id"] == sound
        with pytest.raises(OperationError) as caught:
            await call(LOCAL, "runs.get", {"run_id": damaged})
        assert caught.value.code == "LOG_DAMAGED"
        assert caught.value.details is not None
        assert caught.value.details["position"] > 0
        third = await ended(opened, "exports")
        listed = [run["run_id"] for run in (await call(LOCAL, "runs.list", {}))["runs"]]
        assert {sound, third} == set(listed) - {damaged}
    with open_reader(DataDir(tmp_path), FEATURES) as reader:
        page = completed(reader.operations.call(LOCAL, "runs.list", {}))
        assert {sound, third} <= {run["run_id"] for run in page["runs"]}


async def test_a_log_without_its_write_ahead_log_is_refused(tmp_path: Path) -> None:
    """A list has seen a later position. Without those that know of it, the log opens."""
    log = tmp_path / "log.db"
    async with node(tmp_path) as opened:
        await ended(opened, "exports")
    before = log.read_bytes()
    async with node(tmp_path) as opened:
        run_id = await ended(opened, "exports")
        await opened.operations.call(LOCAL, "runs.list", {})  # so that the list has come this far
    log.write_bytes(before)
    with pytest.RaisesGroup(LogCutShort, allow_unwrapped=True, flatten_subgroups=True):
        async with node(tmp_path):
            pytest.fail("it opened")
    forget(tmp_path)
    async with node(tmp_path) as opened:
        with pytest.raises(OperationError, match="RUN_NOT_FOUND"):
            await opened.operations.call(LOCAL, "runs.get", {"run_id": run_id})
