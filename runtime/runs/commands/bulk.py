"""Cancel or retry many runs, after the user has confirmed their number."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from perdure.runtime.kernel.terminal.invocation import CommandRefusal, ExitCode, Invocation
from perdure.runtime.kernel.terminal.text import counted
from perdure.runtime.runs.commands.parameters import STATUSES

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.runtime.client.choice import Choice
    from perdure.runtime.runs.answers import BulkAnswer, BulkRefusal

Declared = TypeVar("Declared", bound="Callable[..., Any]")


def conditions(command: Declared) -> Declared:
    """Add the options that select runs to a command (a decorator)."""
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
        click.option("--task", metavar="TASK", help="All runs of a task."),
        click.option("--entry", metavar="ENTRY", help="All runs of an entry."),
        click.option("--plugin", metavar="PLUGIN", help="All runs of a plugin."),
        click.option(
            "--status",
            multiple=True,
            type=click.Choice(STATUSES),
            help="All runs in this status. Repeatable.",
        ),
    ):
        command = option(command)
    return command


def stated(**options: Any) -> dict[str, Any]:
    """Return the filters among the options, as the operations take them."""
    named = {
        "status": list(options["status"]) or None,
        "plugin_id": options["plugin"],
        "entry_id": options["entry"],
        "task_id": options["task"],
    }
    return {name: value for name, value in named.items() if value is not None}


def check_one_or_many(run: str | None, where: dict[str, Any]) -> None:
    """Refuse a command with both a run and filters, or with neither."""
    if (run is None) == (not where):
        raise click.UsageError("Pass a RUN, or filters: --status, --plugin, --entry, --task.")


def change_many(
    invocation: Invocation, choice: Choice, verb: str, where: dict[str, Any], *, yes: bool
) -> None:
    """Count the runs, ask for confirmation, and change exactly those, page by page."""
    import trio

    counted_at = trio.run(_page, choice, verb, where)
    count = counted_at["count"]
    if not yes and count:
        _confirm(f"{verb.capitalize()} {counted(count, 'run')}?")
    confirmed = {**where, "count": count, "at": counted_at["cursor"]}
    done, unchanged = 0, 0
    refused: list[BulkRefusal] = []
    while count:
        page = trio.run(_page, choice, verb, confirmed)
        done += len(page["run_ids"])
        unchanged += page["unchanged"]
        refused += page["refused"]
        if page["next_after"] is None:
            break
        confirmed["after"] = page["next_after"]
    if invocation.json:
        told = {"count": count, "done": done, "unchanged": unchanged, "refused": refused}
        invocation.give(told)
    else:
        _tell(invocation, verb, done, unchanged, refused)
    if refused:
        raise click.exceptions.Exit(ExitCode.FAILED)


async def _page(choice: Choice, verb: str, asked: dict[str, Any]) -> BulkAnswer:
    """Count, or change a page. Nothing is connected while the user thinks about the count.

    Only a server does that: this process does not become the log's writer for it.
    """
    async with choice.client() as client:
        page: BulkAnswer = await client.call(f"runs.{verb}_many", asked)
    return page


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise CommandRefusal(
            f"{question} Standard input is no terminal, so this cannot be confirmed.",
            code="VALIDATION_ERROR",
            exit_code=ExitCode.USAGE,
            remedy="Pass --yes to confirm.",
        )
    click.confirm(question, abort=True, err=True)


def _tell(
    invocation: Invocation, verb: str, done: int, unchanged: int, refused: list[BulkRefusal]
) -> None:
    words = {"cancel": "asked to end", "retry": "retried"}
    late = f"; {unchanged:,} needed no change" if unchanged else ""
    invocation.say(f"{counted(done, 'run')} {words[verb]}{late}.")
    for one in refused:
        invocation.say(f"{one['run_id']}: {one['message']} ({one['code']})", err=True)
