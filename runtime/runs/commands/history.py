"""What happened inside a run: a table of times, names and details."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import click

from perdure.runtime.client.choice import Choice
from perdure.runtime.kernel.terminal.command import Command, common
from perdure.runtime.kernel.terminal.invocation import Invocation, pass_invocation
from perdure.runtime.kernel.terminal.text import (
    Cell,
    Column,
    duration,
    instant,
    local,
    size,
    table,
)
from perdure.runtime.runs.commands.parameters import InstantParam, RunName
from perdure.runtime.runs.commands.show import pages_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perdure.actors.run.history_rows import HistoryRow

_COLUMNS: Final = (
    Column("TIME"),
    Column("WHAT"),
    Column("NAME", gives=True),
    Column("DETAIL", wraps=True),
)
_STYLES: Final = {"step_failed": "warning", "cancel_requested": "cancel_requested"}
_HOST: Final = 13  # characters of the id of a host, which tell it from others
_OVER: Final = {
    "drained": "its host went down in order",
    "lost": "its host was lost",
    "ended": "the run ended",
}


@click.command(
    cls=Command,
    short_help="Show what happened inside a run.",
    examples=[
        "perdure history RUN",
        "perdure history RUN --at 2026-08-01T12:00:00Z",
        "perdure history RUN --json | jq -r 'select(.what == \"step_failed\") | .step'",
    ],
)
@click.argument("run", type=RunName())
@click.option(
    "--at", type=InstantParam(), help="The state at a cursor, an ISO 8601 time or epoch seconds."
)
@common
@pass_invocation
def history(invocation: Invocation, run: str, at: str | None) -> None:
    """Show activations, steps with their tries, sleeps, questions, children, exports, the end."""
    pages = Choice(invocation).asked(partial(pages_of, invocation, "runs.history", run, at))
    rows: list[HistoryRow] = [row for page in pages for row in page["history"]]
    if invocation.json:
        for row in rows:
            invocation.give(row)
    elif rows:
        invocation.lines(history_lines(rows, invocation.width))
    else:
        invocation.say("Nothing has happened in this run yet: no host has activated it.")


def history_lines(rows: Sequence[HistoryRow], width: int | None) -> list[str]:
    """Return a table of rows, with dates if they are of several days."""
    days = {local(row["at"]).date() for row in rows}
    return table(_COLUMNS, [_cells(row, dated=len(days) > 1) for row in rows], width)


def _cells(row: HistoryRow, *, dated: bool) -> tuple[Cell | str, ...]:
    time = local(row["at"]).isoformat(" ", "milliseconds")[: len("2026-08-01 12:00:00.000")]
    what = row["what"]
    style = row["outcome"] if what == "ended" else _STYLES.get(what)
    return (
        time if dated else time.partition(" ")[2],
        Cell(what.replace("_", " "), style),
        _name(row),
        "; ".join(filter(None, _details(row))),
    )


def _name(row: HistoryRow) -> str:
    """Return what the row is about."""
    match row["what"]:
        case "activated" | "deactivated":
            return f"#{row['epoch']}"
        case "question_asked" | "answered":
            return row["question_id"]
        case "exported":
            return f"item {row['export_item_id'].rpartition('.')[2]}"
        case "cancel_requested" | "cancel_escalated":
            return row["mode"]
        case "ended":
            return row["outcome"]
        case _:
            return row["step"]


def _details(row: HistoryRow) -> Iterable[str]:
    match row["what"]:
        case "activated":
            yield f"version {row['plugin_version']}"
            yield f"host {row['host'][:_HOST]}"
        case "deactivated":
            yield _OVER[row["how"]]
        case "sleep_begun":
            yield f"until {instant(row['until'])} ({duration(row['until'] - row['at'])})"
        case "step_failed":
            yield f"try {row['tries']}{_error(row)}"
            again = row["retry_at"]
            yield "not tried again" if again is None else f"again in {duration(again - row['at'])}"
        case "child_started":
            yield row["child_run_id"]
        case "exported":
            yield f"{row['type']} {row['description'] or ''}".rstrip()
        case "cancel_requested" | "cancel_escalated":
            yield from _request(row)
        case "ended":
            yield _error(row).removeprefix(": ")
        case "step_recorded" | "question_asked" | "answered":
            yield _value(row)


def _request(row: HistoryRow) -> Iterable[str]:
    if row["what"] == "cancel_requested":
        yield f"{row['intent']}, asked by {row['by']}"
        yield row["reason"] or ""
    if row["deadline"] is not None:
        yield f"harder in {duration(row['deadline'] - row['at'])}"


def _error(row: HistoryRow) -> str:
    error = row["error"]
    return "" if error is None else f": {error['code']}: {error['message']}"


def _value(row: HistoryRow) -> str:
    """Return the beginning of a value, with its size if it is long, and who gave it."""
    from perdure.actors.run.preview import PREVIEW

    by = f"{row['by']}: " if "by" in row else ""
    cut = f"… ({size(row['size'])})" if len(row["preview"]) == PREVIEW else ""
    return f"{by}{row['preview']}{cut}"
