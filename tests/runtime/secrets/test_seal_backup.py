"""Backup of sealed secrets: a run that has not ended gets its secret, wherever it goes on."""

from __future__ import annotations

import shutil
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import trio

from perdure import RunContext, Secret, entry, plugin
from perdure.eventlog import EventLog, LogUnsupported, RealEnv, SqliteStore, open_log
from perdure.eventlog.backup import back_up as back_up_log
from perdure.runtime.backup import BackupReport, back_up, restore
from perdure.runtime.blobs.file_depot import FileDepot
from perdure.runtime.kernel.data_directory import LOG_BACKUP
from perdure.runtime.kernel.node import Node
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.feature import open_run_node
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import AnswerRun, CreateRun, GetRun
from perdure.runtime.secrets.sealed_backup import (
    HASHES,
    SealReport,
    SealsToBackUp,
    runs_with_seals,
    verify_seals,
)
from perdure.runtime.secrets.sealed_files import SealFolder, SecretsUnusable
from perdure.runtime.secrets.secrets import open_secrets

SEEN: list[str] = []
TOKEN = "correct-horse"  # noqa: S105 - it opens nothing


@plugin("test", version="1")
class Patient:
    """Runs that wait."""

    @entry
    async def wait(self, ctx: RunContext, token: Secret | None = None) -> None:
        """Wait for an answer, and then use the secret."""
        await ctx.run.ask("go on?")
        SEEN.append(token or "")


PLUGINS = {"test": declared(Patient)}


@asynccontextmanager
async def node_in(data_dir: Path) -> AsyncIterator[tuple[EventLog, Node]]:
    """Run a node on the files of a data directory; leaving the block is a crash."""
    env = RealEnv()
    with closing(SqliteStore.open(data_dir / "log.db", env=env)) as store:
        secrets = open_secrets(env, data_dir, {})
        async with (
            open_log(env, store) as log,
            open_run_node(log, PLUGINS, secrets=secrets) as node,
        ):
            yield log, node


async def begin(node: Node, token: str | None = TOKEN) -> str:
    """Start a run and let it come to its question; give its id."""
    request = CreateRun(plugin_id="test", entry_id="wait", args={"token": token})
    run_id = (await runs_of(node).runs.create(LOCAL, request))["run"]["run_id"]
    await waiting(node, run_id)
    return run_id


async def waiting(node: Node, run_id: str) -> str:
    """Give the question that a run waits with."""
    with trio.fail_after(10):
        while True:
            run = (await runs_of(node).runs.get(LOCAL, GetRun(run_id=run_id)))["run"]
            if run["questions"]:
                return run["questions"][0]
            assert run["error"] is None
            await trio.sleep(0.01)


async def finish(node: Node, run_id: str) -> str:
    """Answer a run's question; give the status it ends in."""
    question = await waiting(node, run_id)
    await runs_of(node).runs.answer(LOCAL, AnswerRun(run_id=run_id, question_id=question, answer=1))
    await runs_of(node).executor.end_of(run_id)
    await runs_of(node).executor.context.secrets.drop(run_id)  # as the host is doing
    return (await runs_of(node).runs.get(LOCAL, GetRun(run_id=run_id)))["run"]["status"]


async def saved(
    log: EventLog, data_dir: Path, target: Path, *, with_key: bool = True
) -> SealReport:
    """Back up a data directory; say what of its seals."""
    seals = SealFolder(data_dir)
    report = await back_up(log, FileDepot(data_dir), target, seals=seals, with_key=with_key)
    return report.seals


async def restored(source: Path, data_dir: Path) -> BackupReport:
    """Bring a backup back into a data directory."""
    data_dir.mkdir(exist_ok=True)
    return await restore(source, data_dir / "log.db", FileDepot(data_dir), env=RealEnv())


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def mode(path: Path) -> int:
    """Who may do what with a file."""
    return stat.S_IMODE(path.stat().st_mode)


def names(directory: Path) -> list[str]:
    """What is in a directory."""
    return sorted(path.name for path in directory.iterdir())


async def test_a_run_goes_on_elsewhere_with_its_secret(data_dir: Path, tmp_path: Path) -> None:
    """Backed up in the middle of it, restored, taken up; all files are their owner's alone."""
    backup, other = tmp_path / "backup", tmp_path / "other"
    async with node_in(data_dir) as (log, node):
        run_id, over = await begin(node), await begin(node)
        await begin(node, None)
        assert await finish(node, over) == "succeeded"
        report = await saved(log, data_dir, backup)
        assert (report.seals, report.has_key, report.problems) == (1, True, [])
        assert verify_seals(log.store, SealFolder(data_dir)) == report
    assert names(backup) == [LOG_BACKUP, "seal.key", "sealed", HASHES]
    assert names(backup / "sealed") == [run_id]
    digest = sha256((backup / "sealed" / run_id).read_bytes()).hexdigest()
    assert (backup / HASHES).read_text() == f"{digest}  sealed/{run_id}\n"
    back = await restored(backup, other)
    assert (back.seals.seals, back.seals.has_key, back.sound) == (1, True, True)
    for place in (backup, other):
        assert mode(place / "seal.key") == mode(place / "sealed" / run_id) == 0o600
        assert mode(place / "sealed") == 0o700
    SEEN.clear()
    async with node_in(other) as (log, node):
        assert verify_seals(log.store, SealFolder(other)).sound
        assert await finish(node, run_id) == "succeeded"
    assert SEEN == [TOKEN]


async def test_without_the_key_a_backup_opens_for_nobody(data_dir: Path, tmp_path: Path) -> None:
    """Nothing starts on what was restored from it until the key is put beside it."""
    backup, other = tmp_path / "backup", tmp_path / "other"
    async with node_in(data_dir) as (log, node):
        run_id = await begin(node)
        report = await saved(log, data_dir, backup, with_key=False)
        assert (report.seals, report.has_key, report.sound) == (1, False, True)
    assert names(backup) == [LOG_BACKUP, "sealed", HASHES]
    back = await restored(backup, other)
    assert (back.seals.seals, back.seals.has_key, back.sound) == (1, False, True)
    with pytest.raises(SecretsUnusable, match="put it back"):
        async with node_in(other):
            pytest.fail("it has started")
    shutil.copy2(data_dir / "seal.key", other)
    SEEN.clear()
    async with node_in(other) as (_, node):
        assert await finish(node, run_id) == "succeeded"
    assert SEEN == [TOKEN]


async def test_a_key_that_was_put_there_before_is_used(data_dir: Path, tmp_path: Path) -> None:
    """It opens the seals while they are brought back; a wrong one does not."""
    backup, other = tmp_path / "backup", tmp_path / "other"
    async with node_in(data_dir) as (log, node):
        await begin(node)
        await saved(log, data_dir, backup, with_key=False)
    other.mkdir()
    shutil.copy2(data_dir / "seal.key", other)
    assert (await restored(backup, other)).seals == SealReport(seals=1, has_key=True)
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    SealFolder(wrong).key(lambda count: b"k" * count)
    report = (await restored(backup, wrong)).seals
    assert (report.seals, report.problem_count) == (0, 1)
    assert "does not open" in report.problems[0]
    assert not (wrong / "sealed").exists()


async def test_a_seal_that_goes_while_the_log_is_copied_is_in_the_backup(
    data_dir: Path, tmp_path: Path
) -> None:
    """In the copy its run has not ended. What the copy does not name is not kept."""
    async with node_in(data_dir) as (log, node):
        run_id, over = await begin(node), await begin(node)
        draft = tmp_path / "draft"
        draft.mkdir()
        sealing = SealsToBackUp(SealFolder(data_dir), draft)
        sealing.collect()
        assert names(draft / "sealed") == sorted([run_id, over])
        assert await finish(node, over) == "succeeded"
        await back_up(log, FileDepot(data_dir), tmp_path / "log-only")
        assert await finish(node, run_id) == "succeeded"
        with closing(
            SqliteStore.open_reader(tmp_path / "log-only" / LOG_BACKUP, kind="backup")
        ) as copy:
            assert runs_with_seals(copy) == [run_id]
            report = sealing.complete(copy, log.store, with_key=True)
    assert (report.seals, report.sound) == (1, True)
    assert names(draft / "sealed") == [run_id]


async def test_a_seal_that_came_and_went_meanwhile_is_no_error(
    data_dir: Path, tmp_path: Path
) -> None:
    """Of a run that has not ended in the copy, and has in the log; one that just came is taken."""
    async with node_in(data_dir) as (log, node):
        with mock.patch.object(SealsToBackUp, "collect"):
            run_id, stays = await begin(node), await begin(node)

            with after_the_log(lambda: finish(node, run_id)):
                report = await saved(log, data_dir, tmp_path / "backup")
        assert (report.seals, report.problems) == (1, [])
        assert names(tmp_path / "backup" / "sealed") == [stays]
        assert verify_seals(log.store, SealFolder(data_dir)).seals == 1


def after_the_log(then: Callable[[], Awaitable[object]]) -> Any:
    """Do something when a backup has copied the log."""

    async def copy(log: EventLog, target: Path, **options: Any) -> None:
        await back_up_log(log, target, **options)
        await then()

    return mock.patch("perdure.runtime.backup.back_up_log", copy)


async def test_a_backup_that_fails_leaves_nothing(data_dir: Path, tmp_path: Path) -> None:
    """Least of all secrets, under a name that nobody looks at."""

    async def fails() -> None:
        raise OSError(28, "No space left on device")

    async def cancelled() -> None:
        scope.cancel()
        await trio.lowlevel.checkpoint()

    async with node_in(data_dir) as (log, node):
        await begin(node)
        with after_the_log(fails), pytest.raises(OSError, match="No space"):
            await saved(log, data_dir, tmp_path / "backup")
        with trio.CancelScope() as scope, after_the_log(cancelled):
            await saved(log, data_dir, tmp_path / "backup")
        assert scope.cancelled_caught
    assert names(tmp_path) == ["data"]


async def test_missing_and_damaged_seals_are_named(data_dir: Path, tmp_path: Path) -> None:
    """By verification and by a backup, which keeps what is left."""
    async with node_in(data_dir) as (log, node):
        runs = [await begin(node) for _ in range(3)]
        sealed = data_dir / "sealed"
        (sealed / runs[0]).unlink()
        (sealed / runs[1]).write_bytes((sealed / runs[2]).read_bytes())
        for report in (
            verify_seals(log.store, SealFolder(data_dir)),
            await saved(log, data_dir, tmp_path / "backup"),
        ):
            assert (report.seals, report.problem_count, report.sound) == (1, 2, False)
            assert report.problems[0] == f"the sealed secret of run {runs[0]} is missing"
            assert report.problems[1].startswith(
                f"the sealed secret of run {runs[1]} does not open"
            )
        assert names(tmp_path / "backup" / "sealed") == [runs[2]]
        (data_dir / "seal.key").rename(tmp_path / "lost.key")
        report = verify_seals(log.store, SealFolder(data_dir))
        assert (report.seals, report.has_key, report.problem_count) == (0, False, 3)
        assert "seal.key is missing" in report.problems[1]
        report = await saved(log, data_dir, tmp_path / "keyless")
        assert (report.has_key, report.problem_count) == (False, 3)
        assert names(tmp_path / "keyless" / "sealed") == sorted(runs[1:])


async def test_a_backup_that_was_damaged_says_so_when_it_is_restored(
    data_dir: Path, tmp_path: Path
) -> None:
    """A seal that is not what it was is not brought back, with the key or without."""
    async with node_in(data_dir) as (log, node):
        runs = [await begin(node) for _ in range(3)]
        await saved(log, data_dir, tmp_path / "with")
        await saved(log, data_dir, tmp_path / "without", with_key=False)
    for backup in (tmp_path / "with", tmp_path / "without"):
        (backup / "sealed" / runs[0]).write_bytes(b"perdure-seal-1\nhalf")
        (backup / "sealed" / runs[1]).unlink()
        other = tmp_path / f"from-{backup.name}"
        report = (await restored(backup, other)).seals
        assert (report.seals, report.problem_count) == (1, 2)
        assert report.problems[0].endswith("its hash is not the one it had")
        assert report.problems[1].endswith("is missing")
        assert names(other / "sealed") == [runs[2]]


async def test_nothing_of_another_is_overwritten(data_dir: Path, tmp_path: Path) -> None:
    """Neither a key nor a seal; it is refused before anything is written."""
    backup = tmp_path / "backup"
    async with node_in(data_dir) as (log, node):
        run_id = await begin(node)
        await saved(log, data_dir, backup)
    for is_key in (True, False):
        other = tmp_path / f"other-{is_key}"
        other.mkdir()
        if is_key:
            SealFolder(other).key(lambda count: b"k" * count)
        else:
            SealFolder(other).put(run_id, b"another")
        before = names(other)
        with pytest.raises(LogUnsupported, match="never overwritten; restore into another"):
            await restored(backup, other)
        assert names(other) == before


async def test_what_an_interrupted_restore_left_is_no_hindrance(
    data_dir: Path, tmp_path: Path
) -> None:
    """Seals that are the same, and one that is half-written; the log comes last."""
    backup, other = tmp_path / "backup", tmp_path / "other"
    async with node_in(data_dir) as (log, node):
        run_id, second = await begin(node), await begin(node)
        await saved(log, data_dir, backup)
    (other / "sealed").mkdir(parents=True, mode=0o700)
    shutil.copy2(backup / "sealed" / run_id, other / "sealed")
    (other / "sealed" / f"{second}.new").write_bytes(b"half")
    assert (await restored(backup, other)).sound
    assert names(other / "sealed") == sorted([run_id, second])


async def test_a_backup_that_was_never_completed_is_refused(data_dir: Path, tmp_path: Path) -> None:
    """It has the log, and who knows what else."""
    backup = tmp_path / "backup"
    async with node_in(data_dir) as (log, node):
        await begin(node)
        await saved(log, data_dir, backup)
    backup.rename(tmp_path / "backup.part")
    with pytest.raises(LogUnsupported, match="never completed"):
        await restored(tmp_path / "backup.part", tmp_path / "other")
    assert names(tmp_path / "other") == []


@pytest.mark.parametrize(("change", "said"), [(b"k", "is no key"), (None, "chmod 600")])
async def test_a_key_in_a_backup_that_cannot_be_it_is_refused(
    data_dir: Path, tmp_path: Path, change: bytes | None, said: str
) -> None:
    """Of another length, or one that others can read."""
    backup = tmp_path / "backup"
    async with node_in(data_dir) as (log, node):
        await begin(node)
        await saved(log, data_dir, backup)
    if change is None:
        (backup / "seal.key").chmod(0o644)
    else:
        (backup / "seal.key").write_bytes(change)
    with pytest.raises(SecretsUnusable, match=said):
        await restored(backup, tmp_path / "other")
    assert names(tmp_path / "other") == []
