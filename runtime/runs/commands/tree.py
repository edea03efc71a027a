"""Families of runs: each with those that it has started, indented under it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict

from perdure.actors.run.views import RunRecord
from perdure.runtime.kernel.terminal.text import table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from perdure.runtime.kernel.terminal.text import Cell, Column
    from perdure.runtime.runs.answers import RunPage

    List = Callable[[dict[str, Any]], Awaitable[RunPage]]
    Cells = Callable[[RunRecord], Sequence[Cell | str]]

DEPTH: Final = 5  # generations under a run
WIDTH: Final = 10  # children of each run
MOST: Final = 500  # runs in all


class Family(TypedDict):
    """A run with its children, newest first; ``more`` of them are not shown."""

    run: RunRecord
    children: list[Family]
    more: int


async def families(page: RunPage, listed: List) -> list[Family]:
    """Read the families of the runs of a page as they were there, one generation at a time."""
    tops = generation = list(map(_alone, page["runs"]))
    room = MOST - len(tops)
    for _ in range(DEPTH):
        parents, generation = generation, []
        for family in parents:
            count = min(family["more"], WIDTH, room)
            if count <= 0:
                continue
            of = {"started_by": family["run"]["run_id"], "at": page["cursor"], "limit": count}
            family["children"] = list(map(_alone, (await listed(of))["runs"]))
            family["more"] -= len(family["children"])
            room -= len(family["children"])
            generation += family["children"]
    return tops


def _alone(run: RunRecord) -> Family:
    return {"run": run, "children": [], "more": run["children"]}


def tree_lines(
    columns: Sequence[Column], tops: Sequence[Family], cells: Cells, width: int | None
) -> list[str]:
    """Return one aligned table; the first cell of each child is indented under its parent's."""
    rows = [row for top in tops for row in _rows(top, cells, len(columns), "", "")]
    return table(columns, rows, width)


def _rows(
    family: Family, cells: Cells, columns: int, branch: str, under: str
) -> Iterator[Sequence[Cell | str]]:
    """Yield a run before its children, and after them how many more there are.

    ``branch`` leads to the run in its first cell, ``under`` to those under it.
    """
    first, *rest = cells(family["run"])
    yield f"{branch}{first}", *rest
    for number, child in enumerate(family["children"], 1):
        is_last = number == len(family["children"]) and not family["more"]
        corner, line = ("└ ", "  ") if is_last else ("├ ", "│ ")
        yield from _rows(child, cells, columns, under + corner, under + line)
    if family["more"]:
        yield f"{under}└ and {family['more']:,} more", *[""] * (columns - 1)
