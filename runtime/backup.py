"""Backup and restore of a data directory: the log, and the blobs and sealed secrets it names.

    <target>/log.backup      the log, as ``perdure.eventlog.backup`` makes it
    <target>/scopes/...      blobs, as a data directory has them
    <target>/sealed/...      secrets and their key (``perdure.runtime.secrets.sealed_backup``)

The log is copied first, and what it names is never collected: so the blobs that a backup needs are
there when it comes to them. A backup appears under its name complete and synced, or not at all.
What is restored appears the other way round: first blobs and seals, and the log when they are
there.

Hashes are checked on the way. A blob or a seal that is missing or damaged is reported, and the rest
is copied: a backup with a hole is better than none, if one knows of the hole. A damaged record is
refused, unless the caller wants such records left out.
"""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import trio

from perdure.eventlog.backup import back_up as back_up_log
from perdure.eventlog.backup import restore as restore_log
from perdure.eventlog.errors import LogUnsupported
from perdure.eventlog.log import EventLog
from perdure.eventlog.sqlite.file import sync_directory
from perdure.eventlog.sqlite.store import BACKUP, SqliteStore
from perdure.eventlog.verify import Problems
from perdure.runtime.blobs.file_depot import DRAFTS, SCOPES, FileDepot
from perdure.runtime.blobs.references import References, catch_up
from perdure.runtime.blobs.store import CHUNK
from perdure.runtime.kernel.data_directory import LOG_BACKUP
from perdure.runtime.secrets.sealed_backup import SealReport, SealsToBackUp, SealsToRestore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from perdure.eventlog.env import Env
    from perdure.runtime.blobs.blob import Blob
    from perdure.runtime.blobs.depot import Depot
    from perdure.runtime.secrets.sealed_files import SealFolder

UNFINISHED: Final = ".part"  # how the name of a backup ends until it is complete
_THREADS: Final = 1
_MISSING: Final = "is missing"
_DAMAGED: Final = "is damaged"


@dataclass(slots=True)
class BlobReport(Problems):
    """Which blobs the log names, and what is wrong with them."""

    blobs: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What was copied beside the log, what is wrong with it, and the records left out."""

    blobs: BlobReport
    seals: SealReport
    left_out: Problems = field(default_factory=Problems)

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return self.blobs.sound and self.seals.sound and self.left_out.sound


async def back_up(
    log: EventLog,
    depot: Depot,
    target: Path,
    *,
    seals: SealFolder | None = None,
    with_key: bool = True,
    left_out: Problems | None = None,
) -> BackupReport:
    """Copy the log as it is now, and what it names, into a new directory.

    The key that opens the seals goes along unless it is to be left out. Damaged records are noted
    in ``left_out``; without it they are refused.
    """
    files = trio.CapacityLimiter(_THREADS)
    draft = await log.env.run_sync(_draft_for, target, limiter=files)
    try:
        report = await _fill(draft, log, depot, seals, with_key=with_key, left_out=left_out)
        await log.env.run_sync(_publish, draft, target, limiter=files)
    except BaseException:
        with trio.CancelScope(shield=True):  # secrets may be in it
            await log.env.run_sync(_remove, draft, limiter=files)
        raise
    return report


async def _fill(
    draft: Path,
    log: EventLog,
    depot: Depot,
    seals: SealFolder | None,
    *,
    with_key: bool,
    left_out: Problems | None,
) -> BackupReport:
    """Copy everything into a directory that nobody knows of yet."""
    files = trio.CapacityLimiter(_THREADS)
    sealed = None if seals is None else SealsToBackUp(seals, draft)
    if sealed is not None:
        await log.env.run_sync(sealed.collect, limiter=files)
    await back_up_log(log, draft / LOG_BACKUP, left_out=left_out)
    with closing(SqliteStore.open_reader(draft / LOG_BACKUP, kind=BACKUP)) as store:
        kept = SealReport()
        if sealed is not None:
            complete = partial(sealed.complete, store, log.store, with_key=with_key)
            kept = await log.env.run_sync(complete, limiter=files)
        blobs = await _copy(log.env, store, depot, FileDepot(draft), left_out)
        return BackupReport(blobs, kept, left_out or Problems())


async def restore(
    source: Path,
    log_path: Path,
    depot: Depot,
    *,
    env: Env,
    left_out: Problems | None = None,
) -> BackupReport:
    """Bring back the blobs and seals of a backup, and then its log, with a new generation.

    Damaged records are noted in ``left_out``; without it they are refused, before anything is made.
    """
    files = trio.CapacityLimiter(_THREADS)
    _refuse_to_overwrite(log_path)
    if source.name.endswith(UNFINISHED):
        raise LogUnsupported(f"{source} is a backup that was never completed; restore another")
    sealed = await env.run_sync(SealsToRestore, source, log_path.parent, limiter=files)
    with closing(SqliteStore.open_reader(source / LOG_BACKUP, kind=BACKUP)) as store:
        blobs = await _copy(env, store, FileDepot(source), depot, left_out)
        seals = await env.run_sync(sealed.restore, store, limiter=files)

    def bring_back() -> None:
        restore_log(source / LOG_BACKUP, log_path, env=env, left_out=left_out).close()

    await env.run_sync(bring_back, limiter=files)
    return BackupReport(blobs, seals, left_out or Problems())


async def verify_blobs(
    log: EventLog, depot: Depot, *, progress: Callable[[int], None] = lambda _blobs: None
) -> BlobReport:
    """Read every blob that the log names, and report what is missing or damaged."""
    return await _each(log, partial(_read, depot), progress, pass_damage=True)


async def _copy(
    env: Env, store: SqliteStore, source: Depot, target: Depot, left_out: Problems | None
) -> BlobReport:
    """Copy the blobs that a log names from one depot to another."""

    def copy(blob: Blob) -> int | str:
        now, draft = env.now(), target.begin(str(env.new_id()))
        try:
            found = _read(source, blob, draft.write)
            if isinstance(found, int) and not target.renew(blob, found, now):
                draft.publish(blob, now)
            return found
        finally:
            draft.discard()

    return await _each(EventLog(env, store), copy, pass_damage=left_out is not None)


async def _each(
    log: EventLog,
    look: Callable[[Blob], int | str],
    progress: Callable[[int], None] = lambda _blobs: None,
    *,
    pass_damage: bool,
) -> BlobReport:
    """Look at every blob that a log names: its size counts, or what is wrong with it."""
    report, last = BlobReport(), None
    threads = trio.CapacityLimiter(_THREADS)
    with closing(References()) as references:
        await catch_up(log, references, pass_damage=pass_damage)
        while page := references.after(last):
            for blob, promised in page:
                found = await log.env.run_sync(look, blob, limiter=threads)
                if isinstance(found, int):
                    report.blobs += 1
                    report.bytes += found
                elif promised or found != _MISSING:  # anybody may talk of a blob that never was
                    report.note([f"{blob.url} {found}"])
                progress(report.blobs)
            last = page[-1].blob
    return report


def _read(source: Depot, blob: Blob, take: Callable[[bytes], None] = lambda _: None) -> int | str:
    """Read a blob to its end; give its size, or what is wrong with it."""
    try:
        content = source.open(blob)
    except FileNotFoundError:
        return _MISSING
    check, size = sha256(), 0
    try:
        while piece := content.read(size, CHUNK):
            check.update(piece)
            size += len(piece)
            take(piece)
    finally:
        content.close()
    return size if check.hexdigest() == blob.sha256 else _DAMAGED


def _draft_for(target: Path) -> Path:
    """Make an empty directory, where an earlier try may have left another."""
    _refuse_to_overwrite(target)
    draft = target.with_name(target.name + UNFINISHED)
    _remove(draft)
    draft.mkdir(mode=0o700)
    return draft


def _remove(draft: Path) -> None:
    if draft.exists():
        shutil.rmtree(draft)


def _refuse_to_overwrite(target: Path) -> None:
    if target.exists():
        raise LogUnsupported(f"{target} exists already and is never overwritten; choose a new name")


def _publish(draft: Path, target: Path) -> None:
    """Give a complete backup its name, durably."""
    with suppress(FileNotFoundError):
        (draft / SCOPES / DRAFTS).rmdir()
    sync_directory(draft)
    draft.rename(target)
    sync_directory(target.parent)
