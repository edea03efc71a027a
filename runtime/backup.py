"""Backup and restore of a data directory: the log first, then the blobs that it names.

    <target>/log.backup      the log, as ``eventlog.backup`` makes it
    <target>/scopes/...      blobs, as a data directory has them

The log is copied first, and what it names is never collected: so the blobs that a backup needs are
there when it comes to them. A backup appears under its name complete and synced, or not at all.
What is restored appears the other way round: first the blobs, and the log when they are there.

Hashes are checked on the way. A blob that is missing or damaged is reported, and the rest is
copied: a backup with a hole is better than none, if one knows of the hole.
"""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import trio

from eventlog.backup import back_up as back_up_log
from eventlog.backup import restore as restore_log
from eventlog.errors import LogUnsupported
from eventlog.log import EventLog
from eventlog.sqlite.file import sync_directory
from eventlog.sqlite.store import BACKUP, SqliteStore
from eventlog.verify import MAX_PROBLEMS
from runtime.blobs import CHUNK
from runtime.file_depot import DRAFTS, SCOPES, FileDepot
from runtime.references import References, catch_up

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eventlog.env import Env
    from runtime.blob import Blob
    from runtime.depot import Depot

LOG_BACKUP: Final = "log.backup"
_THREADS: Final = 1
_MISSING: Final = "is missing"
_DAMAGED: Final = "is damaged"


@dataclass(slots=True)
class BlobReport:
    """Which blobs the log names, and what is wrong with them; the first hundred problems."""

    blobs: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.problem_count

    def note(self, blob: Blob, problem: str) -> None:
        """Take a problem in."""
        self.problem_count += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(f"{blob.url} {problem}")


async def back_up(log: EventLog, depot: Depot, target: Path) -> BlobReport:
    """Copy the log as it is now, and the blobs that it names, into a new directory."""
    files = trio.CapacityLimiter(_THREADS)
    draft = await log.env.run_sync(_draft_for, target, limiter=files)
    await back_up_log(log, draft / LOG_BACKUP)
    store = SqliteStore.open_reader(draft / LOG_BACKUP, kind=BACKUP)
    try:
        report = await _copy(log.env, store, depot, FileDepot(draft))
    finally:
        store.close()
    await log.env.run_sync(_publish, draft, target, limiter=files)
    return report


async def restore(source: Path, log_path: Path, depot: Depot, *, env: Env) -> BlobReport:
    """Bring back the blobs of a backup, and then its log, with a new generation."""
    _refuse_to_overwrite(log_path)
    store = SqliteStore.open_reader(source / LOG_BACKUP, kind=BACKUP)
    try:
        report = await _copy(env, store, FileDepot(source), depot)
    finally:
        store.close()

    def bring_back() -> None:
        restore_log(source / LOG_BACKUP, log_path, env=env).close()

    await env.run_sync(bring_back, limiter=trio.CapacityLimiter(_THREADS))
    return report


async def verify_blobs(
    log: EventLog, depot: Depot, *, progress: Callable[[int], None] = lambda _blobs: None
) -> BlobReport:
    """Read every blob that the log names, and report what is missing or damaged."""
    return await _each(log, partial(_read, depot), progress)


async def _copy(env: Env, store: SqliteStore, source: Depot, target: Depot) -> BlobReport:
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

    return await _each(EventLog(env, store), copy)


async def _each(
    log: EventLog,
    look: Callable[[Blob], int | str],
    progress: Callable[[int], None] = lambda _blobs: None,
) -> BlobReport:
    """Look at every blob that a log names: its size counts, or what is wrong with it."""
    report, last = BlobReport(), None
    threads = trio.CapacityLimiter(_THREADS)
    with closing(References()) as references:
        await catch_up(log, references)
        while page := references.after(last):
            for blob, promised in page:
                found = await log.env.run_sync(look, blob, limiter=threads)
                if isinstance(found, int):
                    report.blobs += 1
                    report.bytes += found
                elif promised or found != _MISSING:  # anybody may talk of a blob that never was
                    report.note(blob, found)
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
    draft = target.with_name(target.name + ".part")
    if draft.exists():
        shutil.rmtree(draft)
    draft.mkdir(mode=0o700)
    return draft


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
