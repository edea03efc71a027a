"""The `perdure` command. Errors of all its commands are turned into messages here."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Final

import click

from perdure.runtime.cli.config import config
from perdure.runtime.cli.doctor import doctor
from perdure.runtime.cli.log_file import log
from perdure.runtime.cli.serve import serve
from perdure.runtime.features import FEATURES
from perdure.runtime.kernel.terminal.command import Group, common
from perdure.runtime.kernel.terminal.invocation import CommandRefusal, ExitCode, Invocation
from perdure.runtime.kernel.terminal.output import STANDARD_OUTPUT, end_by_sigpipe

if TYPE_CHECKING:
    from perdure.runtime.kernel.features import Features

_CONFLICTS: Final = frozenset({403, 409, 503})  # HTTP status codes that mean: refused for now
_INTERNAL: Final = 500
_HOLDER_REMEDY: Final = (
    "`perdure runs`, `show` and `watch` can read the log meanwhile. To write it, wait until that"
    " process ends, or\nstop it. If it is a server that is starting, try again once it is ready. To"
    " use another log, pass --data-dir."
)
_PLACE_REMEDY: Final = "Pass a directory that you can write to with --data-dir."
_SYSTEM_REMEDIES: Final = {
    errno.EACCES: "Run the command as the owner of that file, or pass another directory with"
    " --data-dir.",
    errno.ENOSPC: "Free space on that disk, or pass a directory on another disk with --data-dir.",
    errno.EROFS: "The disk is read-only: pass a directory on another disk with --data-dir.",
}
_OUTPUT_REMEDY: Final = "Send the output elsewhere, or free space where it goes."
_DISK_REMEDY: Final = (
    "Look at the disk, then start again: what was acknowledged is in the log, and runs go on from"
    " there.\n`perdure log verify` checks it."
)
_FILE_REMEDY: Final = (
    "If the file was a log, restore a backup: perdure log restore BACKUP --data-dir DIR. To use"
    " another log,\npass --data-dir."
)


class _Program(Group):
    """The outermost group: it handles all exceptions of its commands."""

    features: Features

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """Begin an invocation. Help and version are printed here, if they can be."""
        try:
            return super().make_context(*args, **{"obj": Invocation(self.features), **more})
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _told(error, json=False) or error from error

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - what the command gives
        """Run a command; turn known errors into refusals with a remedy."""
        invocation = ctx.ensure_object(Invocation)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(ExitCode.INTERRUPTED)
        except (click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            end_by_sigpipe()
        except BaseException as error:
            if isinstance(error, BaseExceptionGroup) and error.subgroup(BrokenPipeError):
                end_by_sigpipe()
            if isinstance(error, BaseExceptionGroup) and error.subgroup(KeyboardInterrupt):
                ctx.exit(ExitCode.INTERRUPTED)
            told = _told(error, json=invocation.json)
            if told is None:
                raise
            told.json, told.color = invocation.json, invocation.color
            raise told from error


def _told(error: BaseException, *, json: bool) -> CommandRefusal | None:
    """Return the refusal for an error; None if click shows it, or if it is a bug."""
    if isinstance(error, BaseExceptionGroup):
        causes = _causes(error)
        return _told(causes[0], json=json) if len(causes) == 1 else None
    if isinstance(error, CommandRefusal):
        return error
    if isinstance(error, click.ClickException):
        if not json:
            return None
        message = error.format_message()
        return CommandRefusal(message, code="VALIDATION_ERROR", exit_code=ExitCode.USAGE)
    return _told_from_below(error)


def _causes(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    """Return the errors of a group; if the log has closed itself, without what follows from it."""
    from perdure.eventlog.errors import LogClosed, OutcomeUnknown, StoreUnreadable

    found: list[BaseException] = []
    for error in group.exceptions:
        found += _causes(error) if isinstance(error, BaseExceptionGroup) else [error]
    why = [error for error in found if isinstance(error, OutcomeUnknown | StoreUnreadable)]
    if not why:
        return found
    first = next((error for error in why if error.__cause__ is not None), why[0])
    after = (error for error in found if not isinstance(error, LogClosed))
    return [first, *(error for error in after if not isinstance(error.__cause__, LogClosed))]


def _told_from_below(error: BaseException) -> CommandRefusal | None:
    from perdure.eventlog.errors import EventLogError, LogLocked, StoreDamaged, UnreadableRecord
    from perdure.runtime.kernel.data_directory import NotADataDirectory
    from perdure.runtime.kernel.errors import ERRORS, OperationError, translated
    from perdure.runtime.kernel.settings import SettingsError
    from perdure.runtime.secrets.sealed_files import SecretsUnusable

    match error:
        case SettingsError() | SecretsUnusable() | NotADataDirectory():
            return CommandRefusal(
                str(error),
                code="VALIDATION_ERROR",
                exit_code=ExitCode.USAGE,
                remedy=getattr(error, "remedy", None),
            )
        case StoreDamaged() | OperationError(__cause__=StoreDamaged()):
            damage = error.__cause__ if isinstance(error, OperationError) else error
            return CommandRefusal(
                f"{damage}.",
                code="LOG_DAMAGED",
                exit_code=ExitCode.FAILED,
                remedy=getattr(damage, "remedy", None) or ERRORS["LOG_DAMAGED"].command,
            )
        case OperationError() | UnreadableRecord():
            return refused(translated(error))
        case LogLocked(pid=pid):
            holder = f"process {pid}" if pid is not None else "another process"
            return CommandRefusal(
                f"{error.path} is being written by {holder}.",
                code="UNAVAILABLE",
                exit_code=ExitCode.UNAVAILABLE,
                remedy=_HOLDER_REMEDY,
            )
        case EventLogError() | OSError():
            message, remedy = _of_the_machine(error)
            return CommandRefusal(
                message, code="UNAVAILABLE", exit_code=ExitCode.UNAVAILABLE, remedy=remedy
            )
        case _:
            return None


def _of_the_machine(error: BaseException) -> tuple[str, str | None]:
    """Return the message and the remedy for an error of a file or of the system."""
    from perdure.eventlog.errors import DiskFull, LogUnsupported, OutcomeUnknown, StoreUnreadable

    if isinstance(error, OutcomeUnknown | StoreUnreadable):
        return f"The log cannot be used any more: {error.__cause__ or error}.", _DISK_REMEDY
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        remedy = _SYSTEM_REMEDIES.get(error.errno or 0, _PLACE_REMEDY)
        if error.filename == STANDARD_OUTPUT:
            remedy = _OUTPUT_REMEDY
        return f"{place}{error.strerror}.", remedy
    if isinstance(error, DiskFull):
        return f"{error}.", _SYSTEM_REMEDIES[errno.ENOSPC]
    return str(error), _FILE_REMEDY if isinstance(error, LogUnsupported) else None


def refused(error: Any) -> CommandRefusal:  # noqa: ANN401 - an OperationError, imported late
    """Return the refusal for an error of the table of operations."""
    exit_code = ExitCode.USAGE
    if error.kind.status in _CONFLICTS:
        exit_code = ExitCode.UNAVAILABLE
    elif error.kind.status == _INTERNAL:
        exit_code = ExitCode.FAILED
    remedy = error.kind.command or None
    return CommandRefusal(
        error.message,
        code=error.code,
        exit_code=exit_code,
        remedy=remedy,
        details=error.details,
    )


def program(features: Features) -> click.Group:
    """Give the `perdure` command for some features."""

    @click.group(
        name="perdure",
        cls=_Program,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        examples=[
            "perdure run demo.count --arg to=100 --arg delay=0.05",
            "perdure runs --status failed",
            "perdure show RUN --at 2026-08-01T12:00",
            "perdure COMMAND --help",
        ],
    )
    @common
    @click.version_option(package_name="perdure", message="%(prog)s %(version)s")
    def main() -> None:
        """Perdure: an event-sourced actor runtime for long-running agent work.

        A RUN is a run's id, or a prefix that matches only one run. If a server holds the log,
        commands ask the server; PERDURE_URL=http://HOST:PORT names one elsewhere.
        """

    main.features = features
    for command in (*features.commands, config, doctor, log, serve):
        main.add_command(command)
    return main


main: Final = program(FEATURES)
