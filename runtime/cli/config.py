"""`perdure config`: the settings."""

from __future__ import annotations

from typing import Any

import click

from perdure.runtime.kernel.terminal.command import Command, common
from perdure.runtime.kernel.terminal.invocation import Invocation, pass_invocation
from perdure.runtime.kernel.terminal.text import Cell, Column, table


@click.command(
    cls=Command,
    short_help="List all settings and where they come from.",
    examples=["perdure config", "PERDURE_RUNS=10 perdure config --json"],
)
@common
@pass_invocation
def config(invocation: Invocation) -> None:
    """List all settings: each value, where it comes from, what it is for.

    Flags come before PERDURE_* variables, those before perdure.toml, and that before defaults.
    """
    loaded, known = invocation.loaded, invocation.table
    values = known.values(loaded.settings)
    rows = [
        {
            "name": name,
            "value": values[name],
            "origin": loaded.origins[name],
            "description": known.description(name),
        }
        for name in known.names
    ]
    if invocation.json:
        invocation.give({"settings": rows})
        return
    columns = (
        Column("SETTING"),
        Column("VALUE", wraps=True),
        Column("ORIGIN"),
        Column("DESCRIPTION", wraps=True),
    )
    cells = [
        (
            row["name"],
            _shown(row["value"]),
            Cell(row["origin"], "dim" if row["origin"] == "default" else "ok"),
            row["description"],
        )
        for row in rows
    ]
    invocation.lines(table(columns, cells, invocation.width))


def _shown(value: Any) -> str:  # noqa: ANN401 - of any setting
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
