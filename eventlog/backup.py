"""Backup and restore: a log copied in pages while it is being written, and brought back.

A backup is a prefix of the log, in a file of its own kind that cannot be opened as a log by
mistake. A restored log gets a new generation, so that cursors from before the restore are refused
instead of pointing at other events. Either file appears complete and synced, or not at all.

Records are compared with their checksums on the way, and those that have none get one. A log with
damaged records is refused, unless the caller wants them left out: then the copy has holes, and its
readers are told of them as they are told of damage.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from perdure.eventlog.errors import DamagedRecord, LogUnsupported
from perdure.eventlog.record import with_checksum
from perdure.eventlog.sqlite.file import sync_directory
from perdure.eventlog.sqlite.lock import WriterLock
from perdure.eventlog.sqlite.store import BACKUP, LOG, SqliteStore
from perdure.eventlog.store import Bounds
from perdure.eventlog.verify import Problems

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from perdure.eventlog.env import Env
    from perdure.eventlog.log import EventLog
    from perdure.eventlog.store import Store

    Progress = Callable[[int, int], None]  # records copied, records in all (roughly)


NAMED: Final = 10  # damaged records that a refusal names; `verify` names more


def _no_progress(_done: int, _all: int) -> None:
    pass


async def back_up(
    log: EventLog,
    target: Path,
    *,
    left_out: Problems | None = None,
    progress: Progress = _no_progress,
) -> int:
    """Copy the log as it is now into a new file; give the position that it reaches.

    Damaged records are noted in ``left_out``; without it they are refused.
    """
    head, damage = await log.head(), left_out or Problems()
    draft = await log.in_thread(_draft_for, target)
    try:
        copy = await log.in_thread(_create, draft, log.env, BACKUP)
        try:
            position = 0
            while position < head.position:
                position = await log.in_thread(
                    copy_page, log.store, copy, position, head.position, damage
                )
                progress(position, head.position)
            if left_out is None:
                _refuse(damage)
            await log.in_thread(copy.complete)
        finally:
            with trio.CancelScope(shield=True):
                await log.env.run_sync(copy.close, limiter=trio.CapacityLimiter(1))
        await log.in_thread(publish, draft, target)
    except BaseException:
        _remove(draft)
        raise
    return head.position


def restore(
    backup: Path,
    target: Path,
    *,
    env: Env,
    left_out: Problems | None = None,
    progress: Progress = _no_progress,
) -> SqliteStore:
    """Make a log of a backup, with a new generation, and open it as its writer.

    Damaged records are noted in ``left_out``; without it they are refused.
    """
    target = target.resolve()
    lock = WriterLock(target)
    try:
        _restore_into(backup, target, env, left_out, progress)
        return SqliteStore.open(target, env=env, lock=lock)
    except BaseException:
        lock.release()
        raise


def _restore_into(
    backup: Path, target: Path, env: Env, left_out: Problems | None, progress: Progress
) -> None:
    draft, damage = _draft_for(target), left_out or Problems()
    source = SqliteStore.open_reader(backup, kind=BACKUP)
    try:
        copy = _create(draft, env, LOG)
        try:
            position, end = 0, source.head().position
            while position < end:
                position = copy_page(source, copy, position, end, damage)
                progress(position, end)
            if left_out is None:
                _refuse(damage)
            copy.complete()
        finally:
            copy.close()
        publish(draft, target)
    except BaseException:
        _remove(draft)
        raise
    finally:
        source.close()


def copy_page(source: Store, target: Store, after: int, upto: int, damage: Problems) -> int:
    """Copy the next records, bytes and positions as they are; give the last position looked at."""
    try:
        page = source.read_all(after, Bounds(upto=upto))
    except DamagedRecord as found:
        damage.note([str(found)])
        return found.last
    if not page.records:
        return upto
    target.commit([r if r.checksum is not None else with_checksum(r) for r in page.records])
    if target.needs_upkeep:
        target.upkeep()
    return page.records[-1].position


def _refuse(damage: Problems) -> None:
    if not damage.sound:
        named = "; ".join(damage.problems[:NAMED])
        raise DamagedRecord("the log", f"{damage.problem_count} of its records: {named}")


def publish(draft: Path, target: Path) -> None:
    """Give a complete file its name, durably."""
    fd = os.open(draft, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    _refuse_to_overwrite(target)
    os.link(draft, target)  # unlike a rename, this never replaces a file that appeared meanwhile
    draft.unlink()
    sync_directory(target.parent)


def _refuse_to_overwrite(target: Path) -> None:
    """Refuse a name that is taken, or beside which parts of another log lie."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        part = target.with_name(target.name + suffix)
        if part.exists():
            raise LogUnsupported(f"{part} exists already and is never overwritten; name a new file")


def _draft_for(target: Path) -> Path:
    _refuse_to_overwrite(target)
    draft = target.with_name(target.name + ".part")
    _remove(draft)
    return draft


def _create(path: Path, env: Env, kind: str) -> SqliteStore:
    return SqliteStore.create(path, env=env, kind=kind)


def _remove(draft: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            draft.with_name(draft.name + suffix).unlink()
