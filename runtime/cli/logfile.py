"""`perdure log`: the log as a file: verify it, back it up, restore it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from runtime.cli.commands import Group, common
from runtime.cli.invocation import ExitCode, Invocation, Refusal, pass_invocation
from runtime.cli.words import styled

if TYPE_CHECKING:
    from collections.abc import Callable


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
    """Read the whole log and say whether it keeps its promises.

    Works beside the process that writes it. Exit code 1: something is wrong.
    """
    from eventlog.verify import verify as verify_log
    from runtime.beside import completed, open_beside

    require_log(invocation)
    with open_beside(invocation.data) as beside:
        report = completed(verify_log(beside.log, progress=_counting(invocation)))
    if invocation.json:
        invocation.give(
            {
                "sound": report.sound,
                "records": report.records,
                "streams": report.streams,
                "problems": report.problems,
                "problem_count": report.problem_count,
            }
        )
    else:
        invocation.say(f"{report.records:,} records in {report.streams:,} streams were read.")
        for problem in report.problems:
            invocation.say(f"  {styled(problem, 'fail')}")
        if report.problem_count > len(report.problems):
            invocation.say(f"  and {report.problem_count - len(report.problems):,} more")
        if report.sound:
            invocation.say(styled("The log is sound.", "ok"))
        else:
            invocation.say(f"{report.problem_count:,} problems. Do not write to this log any more:")
            invocation.say("keep the file, and restore a backup into another directory:")
            invocation.say("  perdure log restore BACKUP --data-dir DIR")
    if not report.sound:
        raise click.exceptions.Exit(ExitCode.FAILED)


@log.command(
    examples=["perdure log backup today.perdure", "perdure log backup /backups/$(date -I).perdure"]
)
@click.argument("dest", type=click.Path(path_type=Path))
@common
@pass_invocation
def backup(invocation: Invocation, dest: Path) -> None:
    """Copy the log as it is now into a new file, also while it is being written.

    The file appears complete, or not at all. It is never overwritten.
    """
    import trio

    require_log(invocation)
    if not dest.parent.is_dir():
        raise click.UsageError(f"{dest.parent} is not a directory; make it first.")
    position = trio.run(_back_up, invocation, dest)
    if invocation.json:
        invocation.give({"path": str(dest), "records": position})
    else:
        invocation.say(f"{position:,} records are in {dest}.")


async def _back_up(invocation: Invocation, dest: Path) -> int:
    from contextlib import closing

    from eventlog.backup import back_up
    from eventlog.env import RealEnv
    from eventlog.log import open_log
    from eventlog.sqlite import SqliteStore

    with closing(SqliteStore.open_reader(invocation.data.log)) as store:
        async with open_log(RealEnv(), store) as opened:
            counting = _counting(invocation)
            return await back_up(opened, dest, progress=lambda done, _: counting(done))


@log.command(examples=["perdure log restore today.perdure --data-dir restored"])
@click.argument("src", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@common
@pass_invocation
def restore(invocation: Invocation, src: Path) -> None:
    """Make a log of a backup, in a data directory that has none.

    Cursors of the log that was backed up are refused by the new one.
    """
    from contextlib import closing

    from eventlog.backup import restore as restore_log
    from eventlog.env import RealEnv
    from eventlog.sqlite import SqliteStore
    from eventlog.sqlite.store import BACKUP

    data = invocation.data
    if data.log.exists():
        raise Refusal(
            f"{data.log} exists already and is never overwritten.",
            code="CONFLICT",
            exit_code=ExitCode.UNAVAILABLE,
            remedy="Name another directory with --data-dir, or move this one away first.",
        )
    SqliteStore.open_reader(src, kind=BACKUP).close()  # before anything is made for it
    data.make()
    counting = _counting(invocation)
    restored = restore_log(src, data.log, env=RealEnv(), progress=lambda done, _: counting(done))
    with closing(restored) as store:
        records, generation = store.head().position, store.generation
    if invocation.json:
        invocation.give({"path": str(data.log), "records": records, "generation": generation})
    else:
        invocation.say(f"{records:,} records are in {data.log}.")
        invocation.say(f"It is a log of its own now, of generation {generation}.")


def require_log(invocation: Invocation) -> None:
    """Refuse if there is no log yet."""
    if not invocation.data.log.exists():
        raise Refusal(
            f"there is no log in {invocation.data.path}.",
            code="UNAVAILABLE",
            exit_code=ExitCode.UNAVAILABLE,
            remedy="`perdure run demo.count` makes one; --data-dir names another directory.",
        )


def _counting(invocation: Invocation) -> Callable[[int], None]:
    """Count records on a terminal while it takes its time."""
    if invocation.json or not invocation.is_terminal:
        return lambda _: None

    def count(records: int) -> None:
        click.echo(f"\r{records:,} records …\r", nl=False, err=True)

    return count
