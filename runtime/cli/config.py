"""`perdure config`: the settings."""

from __future__ import annotations

from typing import Any

import click

from perdure.runtime.kernel.terminal.command import Command, common
from perdure.runtime.kernel.terminal.invocation import Invocation, pass_invocation
from perdure.runtime.kernel.terminal.text import Cell, Column, table


@click.command(
    cls=Command,
    short_help="List all settings with their origins.",
    examples=["perdure config", "PERDURE_RUNS=10 perdure config --json"],
)
@common
@pass_invocation
def config(invocation: Invocation) -> None:
    """List all settings with value, origin and description.

    Flags override PERDURE_* variables, variables override perdure.toml, perdure.toml overrides
    defaults.
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
