"""Results as a table for people, at most 100 columns wide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tools.bench.measure import Spread
    from tools.bench.result import Result, Row

WIDTH: Final = 100
NOTE: Final = "Medians of the rounds; +- is half the distance between their quartiles."
_HEADINGS: Final = ("", "ours", "baseline", "ratio", "target", "")
_WIDTHS: Final = (24, 18, 18, 14, 9, 7)  # with two spaces between them: 100
_RESULT: Final = {True: "reached", False: "missed", None: ""}


def table(results: Sequence[Result]) -> str:
    """Give the table of all results."""
    return "\n".join(line for result in results for line in _lines(result)) + f"\n{NOTE}\n"


def number(value: float) -> str:
    """Give a number with about three significant digits, large ones whole."""
    size = abs(value)
    for limit, form in ((100, ",.0f"), (10, ".1f"), (1, ".2f"), (0.001, ".3f")):
        if size >= limit:
            return format(value, form)
    return format(value, ".2g")


def _lines(result: Result) -> Iterator[str]:
    """Give the lines of one benchmark."""
    benchmark = result.benchmark
    rounds = len(result.pairs)
    yield f"{benchmark.name}: {benchmark.title}"
    yield f"  beside {benchmark.baseline}; {rounds} round{'s' if rounds > 1 else ''}"
    yield _line(_HEADINGS)
    for row in result.rows:
        yield _line(_cells(row))
    yield ""


def _cells(row: Row) -> tuple[str, ...]:
    """Give the texts of one row."""
    return (
        "  " + row.label,
        _cell(row.ours),
        _cell(row.baseline),
        _cell(row.ratio, "x"),
        "" if row.target is None else str(row.target),
        _RESULT[row.reached],
    )


def _cell(spread: Spread | None, unit: str = "") -> str:
    """Give a median and how far the rounds lie apart."""
    if spread is None:
        return ""
    return f"{number(spread.median)}{unit} +-{spread.relative:>3.0%}"


def _line(cells: Sequence[str]) -> str:
    """Align texts: the first to the left, numbers to the right."""
    first, *others = cells
    padded = [first.ljust(_WIDTHS[0])]
    padded += [cell.rjust(width) for cell, width in zip(others, _WIDTHS[1:], strict=True)]
    return "  ".join(padded).rstrip()
