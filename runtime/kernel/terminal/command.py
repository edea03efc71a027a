"""What all commands share: three options, and help that ends with examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from perdure.runtime.kernel.terminal.invocation import Invocation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Declared = TypeVar("Declared", bound="Callable[..., Any] | click.Command")


def _option(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Return a callback that stores the option, before or after the subcommand."""

    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:  # noqa: ANN401
        if value:
            setattr(context.find_root().ensure_object(Invocation), name, value)

    return keep


def common(command: Declared) -> Declared:
    """Add the options of every command to a command (a decorator)."""
    for option in (
        click.option(
            "--no-color",
            is_flag=True,
            expose_value=False,
            callback=_option("no_color"),
            help="Disable colours (also: NO_COLOR).",
        ),
        click.option(
            "--json",
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_option("json"),
            help="Print JSON: one object, or one object per line.",
        ),
        click.option(
            "--data-dir",
            metavar="DIR",
            expose_value=False,
            callback=_option("data_dir"),
            help="Directory of the log (PERDURE_DATA_DIR, default .perdure).",
        ),
    ):
        command = option(command)
    return command


class _Examples:
    """Help that ends with examples."""

    examples: Sequence[str] = ()

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each on a line of its own."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"  {example}\n")


class Command(_Examples, click.Command):
    """A command with examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **options: Any) -> None:
        """Accept the arguments of click, and examples."""
        super().__init__(*args, **options)
        self.examples = examples


class Group(_Examples, click.Group):
    """A group with examples."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click has it
        """Return the commands in the order in which they were added."""
        return list(self.commands)

    def __init__(self, *args: Any, examples: Sequence[str] = (), **options: Any) -> None:
        """Accept the arguments of click, and examples."""
        super().__init__(*args, **options)
        self.examples = examples
