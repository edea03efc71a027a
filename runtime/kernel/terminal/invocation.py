"""One use of the command line: its options, its settings, how it speaks."""

from __future__ import annotations

import os
import shutil
import sys
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.runtime.kernel.data_directory import DataDir
    from perdure.runtime.kernel.settings import Loaded, Settings


class ExitCode(IntEnum):
    """What the command's end tells a script."""

    SUCCEEDED = 0
    FAILED = 1
    USAGE = 2
    CANCELED = 3
    TIMEOUT = 4
    UNAVAILABLE = 5
    INTERRUPTED = 130


MEANINGS: Final = {
    ExitCode.SUCCEEDED: "the run succeeded, or the command did what it was asked to",
    ExitCode.FAILED: "the run failed, or a check found something wrong",
    ExitCode.USAGE: "the command makes no sense: an option, an argument, a setting, a name",
    ExitCode.CANCELED: "the run was canceled",
    ExitCode.TIMEOUT: "the run's time was up",
    ExitCode.UNAVAILABLE: "refused for now: the log is held by another process, say",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C or a second signal before there was an end to tell",
}


def exit_code_of(status: str) -> ExitCode:
    """Give the exit code for a run's end."""
    from perdure.actors.run.status import Outcome

    return ExitCode[Outcome(status).name]


class Refusal(click.ClickException):
    """Why nothing was done, and what to do about it."""

    def __init__(
        self, message: str, *, code: str, exit_code: ExitCode, remedy: str | None = None
    ) -> None:
        """``code`` is for programs, ``remedy`` a sentence for people."""
        super().__init__(message)
        self.code = code
        self.exit_code = exit_code  # type: ignore[misc]  # click has one for each class
        self.remedy = remedy
        self.json = False
        self.color: bool | None = None

    def show(self, file: Any = None) -> None:  # noqa: ANN401 - as click has it
        """Say it: to people, or as an object."""
        stream = file or sys.stderr
        if self.json:
            told = {"code": self.code, "message": self.message, "remedy": self.remedy}
            click.echo(encoded({"error": told}), file=stream)
            return
        mark = click.style("Error:", fg="red", bold=True)
        click.echo(f"{mark} {self.message}", file=stream, color=self.color)
        if self.remedy:
            click.echo(self.remedy, file=stream, color=self.color)


class Invocation:
    """The options that every command has, and what follows from them."""

    def __init__(self) -> None:
        """Begin without any option."""
        self.data_dir: str | None = None
        self.flags: dict[str, Any] = {}  # settings that a command has options for
        self.json = False
        self.no_color = False

    @cached_property
    def loaded(self) -> Loaded:
        """The settings, each with its origin."""
        from perdure.runtime.kernel.settings import load_settings

        return load_settings({"data_dir": self.data_dir, **self.flags}, os.environ, Path.cwd())

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self.loaded.settings

    @property
    def place(self) -> DataDir:
        """Where the log is, or whatever there is in its place."""
        from perdure.runtime.kernel.data_directory import DataDir

        return DataDir.of(self.settings)

    @property
    def data(self) -> DataDir:
        """Where the log is; what can be none is refused."""
        place = self.place
        place.check()
        return place

    @property
    def color(self) -> bool | None:
        """Whether to use colours: never, or (None) on a terminal."""
        return False if self.no_color or os.environ.get("NO_COLOR") else None

    @property
    def is_terminal(self) -> bool:
        """Whether people read along."""
        return sys.stdout is not None and sys.stdout.isatty()

    @property
    def width(self) -> int | None:
        """How many columns there are; None if nobody counts them."""
        if os.environ.get("COLUMNS", "").isdigit() or self.is_terminal:
            return max(40, shutil.get_terminal_size().columns)
        return None

    def say(self, text: str = "", *, err: bool = False) -> None:
        """Print a line for people."""
        click.echo(text, err=err, color=self.color)

    def lines(self, lines: Sequence[str]) -> None:
        """Print lines for people."""
        for line in lines:
            self.say(line)

    def give(self, value: Any) -> None:  # noqa: ANN401 - any JSON value
        """Print an object for programs, on a line of its own."""
        click.echo(encoded(value))


def encoded(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Give a value as JSON, in one line."""
    import msgspec

    return msgspec.json.encode(value).decode()


pass_invocation = click.make_pass_decorator(Invocation)
