"""The page that keeps what the soak came to (``docs/soak.md``): two tables of it.

One has a row for each part. The other has a row for each test of a part that names acceptance
items; the gate of the suite takes these tests, which ``make test`` leaves out, as it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

PARTS_HEADING: Final = "| part | date | revision | volume | seconds | result |"
TESTS_HEADING: Final = "| part | test | items | result |"

# Properties of a test in pytest's reports.
ITEMS: Final = "acceptance"  # the items that it names, with a space between
FIGURES: Final = "figures"  # what it has measured, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakedTest:
    """A test, all variants together: the items it names, and how it ended."""

    test: str  # of its module, with dots
    items: frozenset[str]
    outcome: str  # passed, failed or skipped
    figures: str = ""

    def cells(self) -> list[str]:
        """Give its row without the first cell."""
        items = " ".join(sorted(self.items, key=lambda item: (item[0], int(item[1:]))))
        result = f"{self.outcome}: {self.figures}" if self.figures else self.outcome
        return [self.test, items, result]


def recorded(text: str, heading: str, part: str, rows: Sequence[Sequence[str]]) -> str:
    """Give the page with the rows of a part replaced in one of its tables, in order."""
    before, _, table = text.partition(heading)
    _, rule, *lines = table.split("\n")
    end = next((number for number, line in enumerate(lines) if not line.startswith("|")), None)
    others = [cells for cells in map(_cells, lines[:end]) if cells[0] != part]
    ordered = sorted([*others, *([part, *cells] for cells in rows)])
    rest = [] if end is None else lines[end:]
    return before + "\n".join(
        [heading, rule, *(f"| {' | '.join(cells)} |" for cells in ordered), *rest]
    )


def soaked_outcomes(text: str) -> dict[str, str]:
    """Say how each test ended that the page has a row for."""
    _, _, table = text.partition(TESTS_HEADING)
    outcomes = {}
    for line in table.split("\n")[2:]:
        if not line.startswith("|"):
            break
        _, test, _, result = _cells(line)
        outcomes[test] = result.partition(": ")[0]
    return outcomes


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
