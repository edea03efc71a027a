"""`perdure serve`."""

from __future__ import annotations

import click

from runtime.cli.commands import Command, common
from runtime.cli.invocation import Invocation, pass_invocation
from runtime.cli.words import pairs


@click.command(
    cls=Command,
    short_help="Open the log and say what is in it.",
    examples=["perdure serve", "perdure serve --data-dir /tmp/trial"],
)
@common
@pass_invocation
def serve(invocation: Invocation) -> None:
    """Open the log and say what is in it."""
    from contextlib import closing
    from importlib.metadata import version

    from eventlog.env import RealEnv
    from eventlog.sqlite import SqliteStore

    data = invocation.data
    data.make()
    with closing(SqliteStore.open(data.log, env=RealEnv())) as store:
        about = {
            "version": version("perdure"),
            "log": str(data.log),
            "generation": store.generation,
            "records": store.head().position,
        }
    if invocation.json:
        invocation.give(about)
        return
    invocation.say("Perdure, an event-sourced actor runtime for long-running agent work.")
    invocation.say()
    rows = [
        (name, f"{value:,}" if name == "records" else str(value)) for name, value in about.items()
    ]
    invocation.lines(["  " + line for line in pairs(rows, None)])
    invocation.say()
    invocation.say("The log is open; there is nothing to serve over the network yet.")
