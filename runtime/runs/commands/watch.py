"""`perdure watch`: follow a run that another process executes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from perdure.runtime.client.choice import Choice
from perdure.runtime.kernel.terminal.command import Command, common
from perdure.runtime.kernel.terminal.interrupts import Interrupts
from perdure.runtime.kernel.terminal.invocation import ExitCode, Invocation, pass_invocation
from perdure.runtime.runs.commands.found_run import found_run
from perdure.runtime.runs.commands.parameters import RunName

if TYPE_CHECKING:
    from perdure.runtime.client.client import Caller
    from perdure.runtime.runs.answers import RunAnswer


@click.command(
    cls=Command,
    short_help="Follow a run that another process executes.",
    examples=[
        "perdure watch RUN",
        "perdure watch RUN --json",
        "perdure watch RUN --after CURSOR",
    ],
)
@click.argument("run", type=RunName())
@click.option("--after", metavar="CURSOR", help="Start with the events after this cursor.")
@common
@pass_invocation
def watch(invocation: Invocation, run: str, after: str | None) -> None:
    """Follow a run until its end; the exit code tells the outcome.

    Ctrl-C stops watching; the run continues. Exit code 5: the process that executed the run is
    gone.
    """
    interrupts = click.get_current_context().with_resource(Interrupts())
    choice = Choice(invocation)

    async def find(caller: Caller) -> RunAnswer:
        answer: RunAnswer = await found_run(invocation, caller, run)
        if after is not None:  # a cursor that is none is refused before anything is shown
            await caller.call("runs.list", {"after": after, "limit": 1})
        return answer

    answer = choice.asked(find)
    import trio

    code = trio.run(partial(_watch, invocation, choice, answer, interrupts, after=after))
    raise click.exceptions.Exit(code)


async def _watch(
    invocation: Invocation,
    choice: Choice,
    answer: RunAnswer,
    interrupts: Interrupts,
    *,
    after: str | None,
) -> ExitCode:
    from perdure.runtime.runs.commands.stay import watch_run

    async with choice.client() as client:
        with interrupts.listening():
            return await watch_run(client, invocation, choice, answer, interrupts, after=after)
