"""What all commands have in common: three options, and help that ends with examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from perdure.runtime.kernel.terminal.invocation import Invocation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Declared = TypeVar("Declared", bound="Callable[..., Any] | click.Command")


def _option(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Keep what an option says, wherever among the commands it stands."""

    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:  # noqa: ANN401
        if value:
            setattr(context.find_root().ensure_object(Invocation), name, value)

    return keep


def common(command: Declared) -> Declared:
    """Give a command the options that every command has (a decorator)."""
    for option in (
        click.option(
            "--no-color",
            is_flag=True,
            expose_value=False,
            callback=_option("no_color"),
            help="No colours, not even on a terminal; NO_COLOR says the same.",
        ),
        click.option(
            "--json",
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_option("json"),
            help="JSON for programs: one object, or one a line.",
        ),
        click.option(
            "--data-dir",
            metavar="DIR",
            expose_value=False,
            callback=_option("data_dir"),
            help="Where the log lives (PERDURE_DATA_DIR, default .perdure).",
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
        """Take what click takes, and examples."""
        super().__init__(*args, **options)
        self.examples = examples


class Group(_Examples, click.Group):
    """A group with examples."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click has it
        """Give commands in the order in which people meet them."""
        return list(self.commands)

    def __init__(self, *args: Any, examples: Sequence[str] = (), **options: Any) -> None:
        """Take what click takes, and examples."""
        super().__init__(*args, **options)
        self.examples = examples
