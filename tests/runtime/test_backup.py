"""Backup of a data directory: the log, then the blobs that it names, and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure import RunContext
from perdure.eventlog import EventLog, LogUnsupported, RealEnv, SqliteStore, open_log, verify
from perdure.runtime.backup import back_up, restore, verify_blobs
from perdure.runtime.blobs.file_depot import FileDepot
from perdure.runtime.blobs.store import BlobStore
from perdure.runtime.kernel.data_directory import LOG_BACKUP
from perdure.runtime.kernel.node import Node
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.runs.feature import open_run_node
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CreateRun, ExportRun
from tests.runtime.execution.test_current_run import PLUGINS, Scripted

LARGE = [bytes([number]) * 100_000 for number in range(3)]


@asynccontextmanager
async def node_in(data_dir: Path) -> AsyncIterator[tuple[EventLog, Node]]:
    """Run a node on the files of a data directory."""
    env = RealEnv()
    store = SqliteStore.open(data_dir / "log.db", env=env)
    blobs = BlobStore(env, FileDepot(data_dir))
    async with (
        open_log(env, store) as log,
        open_run_node(log, PLUGINS, blobs=blobs) as node,
    ):
        yield log, node
    store.close()


async def export_all(node: Node) -> str:
    """Let a run export blobs; give its id."""

    async def body(ctx: RunContext) -> None:
        for data in LARGE:
            await ctx.run.export_bytes(data)
        await ctx.run.export_text(f"perdure:blob/0192-never/{'0' * 64} is only talk")

    Scripted.body = staticmethod(body)
    request = CreateRun(plugin_id="test", entry_id="go", args={})
    run_id = (await runs_of(node).runs.create(LOCAL, request))["run"]["run_id"]
    await runs_of(node).executor.end_of(run_id)
    return run_id


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def blob_files(directory: Path) -> list[Path]:
    """The files of blobs, relative to their directory."""
    found = (directory / "scopes").rglob("*")
    return sorted(path.relative_to(directory) for path in found if path.is_file())


async def test_a_backup_brings_back_the_log_and_its_blobs(data_dir: Path, tmp_path: Path) -> None:
    """Every item and every byte; blobs that nobody names stay behind."""
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    async with node_in(data_dir) as (log, node):
        run_id = await export_all(node)
        async with runs_of(node).executor.context.blobs.draft("0192-nobody") as draft:
            await draft.write(b"not named")
            await draft.publish()
        report = await back_up(log, FileDepot(data_dir), backup)
        assert (report.blobs.blobs, report.blobs.bytes, report.sound) == (3, 300_000, True)
        assert (await verify_blobs(log, FileDepot(data_dir))).sound
    assert sorted(path.name for path in backup.iterdir()) == [LOG_BACKUP, "scopes"]
    restored.mkdir()
    report = await restore(backup, restored / "log.db", FileDepot(restored), env=RealEnv())
    assert (report.blobs.blobs, report.sound) == (3, True)
    assert blob_files(restored) == [p for p in blob_files(data_dir) if "0192-nobody" not in str(p)]
    async with node_in(restored) as (log, node):
        assert (await verify(log)).sound
        assert (await verify_blobs(log, FileDepot(restored))).blobs == 3
        page = await runs_of(node).runs.export(LOCAL, ExportRun(run_id=run_id))
        for item, data in zip(page["items"], LARGE, strict=False):
            digest = item["metadata"]["sha256"]
            async with runs_of(node).uploads.open(LOCAL, run_id, digest) as content:
                assert await content.read() == data


async def test_missing_and_damaged_blobs_are_reported(data_dir: Path, tmp_path: Path) -> None:
    """By verification and by a backup, which keeps what is left; a hole is never hidden."""
    async with node_in(data_dir) as (log, node):
        await export_all(node)
        first, second, _ = blob_files(data_dir)
        (data_dir / first).unlink()
        (data_dir / second).write_bytes(b"x" * 100_000)
        for report in (
            await verify_blobs(log, FileDepot(data_dir)),
            (await back_up(log, FileDepot(data_dir), tmp_path / "backup")).blobs,
        ):
            assert (report.blobs, report.problem_count, report.sound) == (1, 2, False)
            assert [problem.split()[-1] for problem in report.problems] == ["missing", "damaged"]
        assert len(blob_files(tmp_path / "backup")) == 1


async def test_nothing_is_overwritten(data_dir: Path, tmp_path: Path) -> None:
    """Neither by a backup nor by a restore; what an earlier try left is no hindrance."""
    backup = tmp_path / "backup"
    left = tmp_path / "backup.part" / "scopes"
    left.mkdir(parents=True)
    (left / "rest").write_text("of an earlier try")
    async with node_in(data_dir) as (log, node):
        await export_all(node)
        await back_up(log, FileDepot(data_dir), backup)
        with pytest.raises(LogUnsupported, match="never overwritten"):
            await back_up(log, FileDepot(data_dir), backup)
    with pytest.raises(LogUnsupported, match="never overwritten"):
        await restore(backup, data_dir / "log.db", FileDepot(data_dir), env=RealEnv())
    assert not left.exists()
    assert not (backup / "scopes" / "rest").exists()
