"""One invocation of the command line: its options, its settings, its output."""

from __future__ import annotations

import os
import shutil
import sys
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perdure.runtime.kernel.terminal.text import clean, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perdure.runtime.kernel.data_directory import DataDir
    from perdure.runtime.kernel.features import Features
    from perdure.runtime.kernel.settings import LoadedSettings, Settings, SettingsTable


class ExitCode(IntEnum):
    """The exit codes of commands."""

    SUCCEEDED = 0
    FAILED = 1
    USAGE = 2
    CANCELED = 3
    TIMEOUT = 4
    UNAVAILABLE = 5
    INTERRUPTED = 130


MEANINGS: Final = {
    ExitCode.SUCCEEDED: "the run succeeded, or the command did its work",
    ExitCode.FAILED: "the run failed, or a check found a problem",
    ExitCode.USAGE: "an option, an argument, a setting or a name is invalid",
    ExitCode.CANCELED: "the run was canceled",
    ExitCode.TIMEOUT: "the run exceeded its time limit",
    ExitCode.UNAVAILABLE: "refused for now, for example because another process holds the log",
    ExitCode.INTERRUPTED: "Ctrl-C or SIGTERM ended the command before there was an outcome",
}


class CommandRefusal(click.ClickException):
    """A command was refused: the reason, and a remedy."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        exit_code: ExitCode,
        remedy: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """``code`` and ``details`` are for programs, ``remedy`` is a sentence for people."""
        super().__init__(message)
        self.code = code
        self.exit_code = exit_code  # type: ignore[misc]  # click has one for each class
        self.remedy = remedy
        self.details = details
        self.json = False
        self.color: bool | None = None

    def show(self, file: Any = None) -> None:  # noqa: ANN401 - as click has it
        """Print the error, as text or as JSON."""
        stream = file or sys.stderr
        if self.json:
            told = {
                "code": self.code,
                "message": self.message,
                "remedy": self.remedy,
                "details": self.details,
            }
            click.echo(encoded({"error": told}), file=stream)
            return
        mark = click.style("Error:", fg="red", bold=True)
        click.echo(f"{mark} {clean(self.message)}", file=stream, color=self.color)
        if self.remedy:
            click.echo(clean(self.remedy), file=stream, color=self.color)


class Invocation:
    """The options of every command, and what is derived from them."""

    def __init__(self, features: Features) -> None:
        """Begin without any option."""
        self.features = features
        self.data_dir: str | None = None
        self.flags: dict[str, Any] = {}  # settings that a command has options for
        self.json = False
        self.no_color = False

    @cached_property
    def table(self) -> SettingsTable:
        """All settings that there are."""
        from perdure.runtime.kernel.settings import SettingsTable

        return SettingsTable(self.features.settings)

    @cached_property
    def loaded(self) -> LoadedSettings:
        """The settings, each with its origin."""
        flags = {"data_dir": self.data_dir, **self.flags}
        return self.table.load(flags, os.environ, Path.cwd())

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self.loaded.settings

    @property
    def place(self) -> DataDir:
        """The data directory, unchecked: it may be a backup, or no directory."""
        from perdure.runtime.kernel.data_directory import DataDir

        return DataDir.of(self.settings)

    @property
    def data(self) -> DataDir:
        """The data directory; a path that cannot be one is refused."""
        place = self.place
        place.check()
        return place

    @property
    def color(self) -> bool | None:
        """Whether to use colours: never, or (None) on a terminal."""
        return False if self.no_color or os.environ.get("NO_COLOR") else None

    @property
    def is_terminal(self) -> bool:
        """Whether standard output is a terminal."""
        return sys.stdout is not None and sys.stdout.isatty()

    @property
    def width(self) -> int | None:
        """The number of columns of the output; None if it has no width."""
        if os.environ.get("COLUMNS", "").isdigit() or self.is_terminal:
            return max(40, shutil.get_terminal_size().columns)
        return None

    def say(self, text: str = "", *, err: bool = False) -> None:
        """Print a line for people; whatever it is made of, it does not steer the terminal."""
        click.echo(printable(text), err=err, color=self.color)

    def note(self, text: str) -> None:
        """Print a line for people beside what the command prints; programs get none."""
        if not self.json:
            self.say(text, err=True)

    def warn(self, text: str) -> None:
        """Tell people what is wrong, where it does not stop the command."""
        self.say(f"Warning: {text}", err=True)

    def lines(self, lines: Sequence[str]) -> None:
        """Print lines for people."""
        for line in lines:
            self.say(line)

    def give(self, value: Any) -> None:  # noqa: ANN401 - any JSON value
        """Print a JSON object on one line."""
        click.echo(encoded(value))


def encoded(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Encode a value as one line of JSON."""
    import msgspec

    return msgspec.json.encode(value).decode()


pass_invocation = click.make_pass_decorator(Invocation)
