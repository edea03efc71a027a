"""`perdure log`: verify, back up and restore the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from perdure.runtime.kernel.terminal.command import Group, common
from perdure.runtime.kernel.terminal.invocation import (
    CommandRefusal,
    ExitCode,
    Invocation,
    pass_invocation,
)
from perdure.runtime.kernel.terminal.text import counted, styled

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.eventlog.sqlite import SqliteStore
    from perdure.eventlog.verify import Problems, Report
    from perdure.runtime.backup import BackupReport, BlobReport
    from perdure.runtime.secrets.sealed_backup import SealReport

Found = TypeVar("Found")
_skip_damaged: Final = click.option(
    "--skip-damaged",
    is_flag=True,
    help="Leave damaged records out instead of refusing. What follows them in their runs cannot be"
    " read; a run without its last records goes on from those before.",
)
_SEALS_REMEDY: Final = (
    "Those runs would fail with SECRET_REQUIRED. Restore their files in sealed/ (or seal.key, mode",
    "600) from a backup before the runs resume, or pass the secret again afterwards:",
    "  perdure retry RUN --secret NAME=VALUE",
)


@click.group(
    cls=Group,
    examples=[
        "perdure log verify",
        "perdure log backup /backups/2026-08-01.perdure",
        "perdure log restore /backups/2026-08-01.perdure --data-dir restored",
    ],
)
def log() -> None:
    """Verify, back up and restore the log."""


@log.command(examples=["perdure log verify", "perdure log verify --json"])
@common
@pass_invocation
def verify(invocation: Invocation) -> None:
    """Check every record of the log, and the blobs and sealed secrets that it names.

    Records are compared with their checksums, blobs with their hashes; sealed secrets are opened
    with seal.key. --data-dir may name a backup.

    Another process may write the log meanwhile. Exit code 1: a problem was found.
    """
    from contextlib import closing
    from functools import partial

    from perdure.eventlog.snapshots import MemorySnapshots
    from perdure.eventlog.verify import verify as verify_log
    from perdure.runtime.kernel.completion import completed
    from perdure.runtime.kernel.log_reader import ReadableLog
    from perdure.runtime.kernel.witness import witness_of
    from perdure.runtime.secrets.sealed_backup import SealReport, verify_seals
    from perdure.runtime.secrets.sealed_files import SealFolder

    if not invocation.place.is_backup:
        require_log(invocation)
    with closing(_opened(invocation)) as store:
        read = ReadableLog(store, MemorySnapshots())
        seen = witness_of(invocation.place, store.generation)
        checking = verify_log(
            read,
            knows=invocation.features.know,
            witness=seen,
            progress=_counting(invocation),
        )
        report = completed(checking)
        look = partial(verify_seals, store, SealFolder(invocation.place.path))
        seals = _looked_at(report, look, SealReport())
    blobs = _looked_at(report, partial(_blobs_of, invocation), None)
    is_sound = report.sound and seals.sound and (blobs is None or blobs.sound)
    if invocation.json:
        invocation.give(
            {
                "sound": is_sound,
                "records": report.records,
                "unchecked": report.unchecked,
                "unknown": report.unknown,
                "streams": report.streams,
                "problems": report.problems,
                "problem_count": report.problem_count,
                **(_blobs(blobs) if blobs is not None else {}),
                **_seals(seals),
            }
        )
    else:
        _tell_verified(invocation, report, blobs, seals)
    if not is_sound:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _looked_at(report: Report, look: Callable[[], Found], nothing: Found) -> Found:
    """Check what the log names. In a damaged log this may fail; its report says why already."""
    try:
        return look()
    except Exception:
        if report.sound:
            raise
        return nothing


def _tell_verified(
    invocation: Invocation, report: Report, blobs: BlobReport | None, seals: SealReport
) -> None:
    """Print what was read, the problems, and what to do."""
    invocation.say(
        f"Read {counted(report.records, 'record')} in {counted(report.streams, 'stream')}."
    )
    if report.unchecked:
        count = counted(report.unchecked, "record")
        invocation.say(f"{count} written before checksums: not all damage in these can be found.")
    if report.unknown:
        count, names = counted(report.unknown, "record"), ", ".join(report.unknown_names)
        invocation.say(f"{count} of a newer release ({names}): upgrade Perdure to read them.")
    _tell_problems(invocation, report)
    if blobs is not None:
        invocation.say(f"Read {counted(blobs.blobs, 'blob')} of {counted(blobs.bytes, 'byte')}.")
        _tell_problems(invocation, blobs)
    if seals.seals:
        invocation.say(f"Opened {counted(seals.seals, 'sealed secret')}.")
    _tell_problems(invocation, seals)
    if not report.sound:
        found = counted(report.problem_count, "problem")
        invocation.say(f"Found {found}. Do not write to this log any more:")
        invocation.say("keep the file, and restore a backup into another directory:")
        invocation.say("  perdure log restore BACKUP --data-dir DIR")
        return
    invocation.say(styled("The log is sound.", "ok"))
    if blobs is not None and not blobs.sound:
        invocation.say("But blobs are missing or damaged: restore those files from a backup.")
        invocation.say("The runs that name them can be read as before.")
    if not seals.sound:
        invocation.lines(_SEALS_REMEDY)


def _blobs_of(invocation: Invocation) -> BlobReport | None:
    """Check the blobs, if there are any."""
    if not (invocation.place.path / "scopes").is_dir():
        return None
    import trio

    return trio.run(_verify_blobs, invocation)


@log.command(
    examples=[
        "perdure log backup today.perdure",
        "perdure log backup /backups/$(date -I).perdure --without-key",
    ]
)
@click.argument("dest", type=click.Path(path_type=Path))
@click.option(
    "--without-key",
    is_flag=True,
    help="Do not copy seal.key, which opens sealed secrets.",
)
@_skip_damaged
@common
@pass_invocation
def backup(invocation: Invocation, dest: Path, *, without_key: bool, skip_damaged: bool) -> None:
    """Copy the log, its blobs and its sealed secrets into a new directory.

    Another process may write the log meanwhile. seal.key is copied too: a reader of the backup can
    open the sealed secrets, which are those of runs that have not ended.

    The directory appears complete or not at all, and an existing one is never overwritten. Exit
    code 1: a blob or a sealed secret is missing or damaged, or damaged records were left out; the
    rest was copied.
    """
    from functools import partial

    import trio

    require_log(invocation)
    if not dest.parent.is_dir():
        raise click.UsageError(f"{dest.parent} is not a directory; create it first.")
    records, report = trio.run(
        partial(_back_up, invocation, dest, with_key=not without_key, skip_damaged=skip_damaged)
    )
    if invocation.json:
        invocation.give({"path": str(dest), "records": records, **_beside_log(report)})
    else:
        invocation.say(f"Copied {_counted(records, report)} to {dest}.")
        if report.seals.has_key:
            invocation.say("It contains seal.key: a reader of the backup can open sealed secrets.")
        elif without_key:
            invocation.say("It does not contain seal.key: keep a copy for the restore.")
        _tell_all_problems(invocation, report)
    if not report.sound:
        raise click.exceptions.Exit(ExitCode.FAILED)


async def _back_up(
    invocation: Invocation, dest: Path, *, with_key: bool, skip_damaged: bool
) -> tuple[int, BackupReport]:
    from contextlib import closing

    from perdure.eventlog.env import RealEnv
    from perdure.eventlog.log import open_log
    from perdure.eventlog.sqlite import SqliteStore
    from perdure.eventlog.sqlite.store import BACKUP
    from perdure.eventlog.verify import Problems
    from perdure.runtime.backup import back_up
    from perdure.runtime.blobs.file_depot import FileDepot
    from perdure.runtime.kernel.data_directory import LOG_BACKUP
    from perdure.runtime.secrets.sealed_files import SealFolder

    path = invocation.data.path
    with closing(SqliteStore.open_reader(invocation.data.log)) as store:
        async with open_log(RealEnv(), store) as opened:
            depot, seals = FileDepot(path), SealFolder(path)
            left_out = Problems() if skip_damaged else None
            report = await back_up(
                opened, depot, dest, seals=seals, with_key=with_key, left_out=left_out
            )
    with closing(SqliteStore.open_reader(dest / LOG_BACKUP, kind=BACKUP)) as copy:
        return copy.head().position, report


@log.command(examples=["perdure log restore today.perdure --data-dir restored"])
@click.argument("src", type=click.Path(exists=True, path_type=Path))
@_skip_damaged
@common
@pass_invocation
def restore(invocation: Invocation, src: Path, *, skip_damaged: bool) -> None:
    """Restore a backup, with blobs and sealed secrets, into a data directory without a log.

    Every record is compared with its checksum. The restored log refuses cursors of the original
    log. If the backup lacks seal.key, put the
    key into the data directory before any run executes there.
    """
    from contextlib import closing
    from functools import partial

    import trio

    from perdure.eventlog.sqlite import SqliteStore
    from perdure.eventlog.sqlite.store import BACKUP
    from perdure.runtime.kernel.data_directory import LOG_BACKUP

    data = invocation.data
    if data.log.exists():
        raise CommandRefusal(
            f"{data.log} exists already; a log is never overwritten.",
            code="CONFLICT",
            exit_code=ExitCode.UNAVAILABLE,
            remedy="Pass another directory with --data-dir, or move this one away.",
        )
    if not (src / LOG_BACKUP).is_file():
        raise click.UsageError(f"{src} is not a backup; `perdure log backup` creates one.")
    SqliteStore.open_reader(src / LOG_BACKUP, kind=BACKUP).close()  # before anything is created
    data.make()
    report = trio.run(partial(_restore, invocation, src, skip_damaged=skip_damaged))
    with closing(SqliteStore.open_reader(data.log)) as store:
        records, generation = store.head().position, store.generation
    if invocation.json:
        restored = {"path": str(data.log), "records": records, "generation": generation}
        invocation.give({**restored, **_beside_log(report)})
    else:
        invocation.say(f"Restored {_counted(records, report)} into {data.path}.")
        invocation.say(f"The restored log has a generation of its own: {generation}.")
        if report.seals.seals and not report.seals.has_key:
            invocation.say(f"The backup lacks seal.key: put it (mode 600) into {data.path} now.")
        _tell_all_problems(invocation, report)
    if not report.sound:
        raise click.exceptions.Exit(ExitCode.FAILED)


async def _restore(invocation: Invocation, src: Path, *, skip_damaged: bool) -> BackupReport:
    from perdure.eventlog.env import RealEnv
    from perdure.eventlog.verify import Problems
    from perdure.runtime.backup import restore as restore_all
    from perdure.runtime.blobs.file_depot import FileDepot

    data = invocation.data
    left_out = Problems() if skip_damaged else None
    depot = FileDepot(data.path)
    return await restore_all(src, data.log, depot, env=RealEnv(), left_out=left_out)


async def _verify_blobs(invocation: Invocation) -> BlobReport:
    from contextlib import closing

    from perdure.eventlog.env import RealEnv
    from perdure.eventlog.log import open_log
    from perdure.runtime.backup import verify_blobs
    from perdure.runtime.blobs.file_depot import FileDepot

    with closing(_opened(invocation)) as store:
        async with open_log(RealEnv(), store) as opened:
            return await verify_blobs(opened, FileDepot(invocation.place.path))


def _opened(invocation: Invocation) -> SqliteStore:
    """Open the log, or the log in a backup."""
    from perdure.eventlog.sqlite import SqliteStore
    from perdure.eventlog.sqlite.store import BACKUP

    place = invocation.place
    if place.is_backup:
        return SqliteStore.open_reader(place.backup, kind=BACKUP)
    return SqliteStore.open_reader(place.log)


def _blobs(report: BlobReport) -> dict[str, Any]:
    return {
        "blobs": report.blobs,
        "blob_bytes": report.bytes,
        "blob_problems": report.problems,
        "blob_problem_count": report.problem_count,
    }


def _seals(report: SealReport) -> dict[str, Any]:
    return {
        "seals": report.seals,
        "key": report.has_key,
        "seal_problems": report.problems,
        "seal_problem_count": report.problem_count,
    }


def _beside_log(report: BackupReport) -> dict[str, Any]:
    return {
        **_blobs(report.blobs),
        **_seals(report.seals),
        "left_out": report.left_out.problems,
        "left_out_count": report.left_out.problem_count,
    }


def _counted(records: int, report: BackupReport) -> str:
    """Return the numbers of records, blobs and sealed secrets as text."""
    blobs, seals = report.blobs, report.seals
    parts = [counted(records, "record")]
    if blobs.blobs:
        parts.append(f"{counted(blobs.blobs, 'blob')} of {counted(blobs.bytes, 'byte')}")
    if seals.seals:
        parts.append(counted(seals.seals, "sealed secret"))
    return " and ".join(parts)


def _tell_all_problems(invocation: Invocation, report: BackupReport) -> None:
    if not report.left_out.sound:
        invocation.say(f"Left out {counted(report.left_out.problem_count, 'damaged record')}:")
    _tell_problems(invocation, report.left_out)
    _tell_problems(invocation, report.blobs)
    _tell_problems(invocation, report.seals)
    if not report.seals.sound:
        invocation.lines(_SEALS_REMEDY)


def _tell_problems(invocation: Invocation, report: Problems) -> None:
    for problem in report.problems:
        invocation.say(f"  {styled(problem, 'fail')}")
    if report.problem_count > len(report.problems):
        invocation.say(f"  and {report.problem_count - len(report.problems):,} more")


def require_log(invocation: Invocation) -> None:
    """Refuse if there is no log yet."""
    if not invocation.data.log.exists():
        raise CommandRefusal(
            f"There is no log in {invocation.data.path}.",
            code="UNAVAILABLE",
            exit_code=ExitCode.UNAVAILABLE,
            remedy="`perdure run demo.count` creates one; --data-dir names another directory.",
        )


def _counting(invocation: Invocation) -> Callable[[int], None]:
    """Return a callback that shows the number of records on a terminal."""
    if invocation.json or not invocation.is_terminal:
        return lambda _: None

    def count(records: int) -> None:
        click.echo(f"\r{records:,} records …\r", nl=False, err=True)

    return count
