"""Two revisions beside each other: their benchmarks measured in alternation, paired by name."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tools.bench.measure import Spread
from tools.bench.table import WIDTH, number

Side = Literal["before", "after"]
SIDES: Final[tuple[Side, Side]] = ("before", "after")
Time = Literal["wall", "cpu"]
BOUNDS: Final[Mapping[Time, float]] = {"wall": 1.10, "cpu": 1.05}  # a row above one is slower

ATTEMPTS: Final = 2  # an old benchmark may have a fault that shows now and then

_WIDTHS: Final = (18, 8, 8, 12, 8, 8, 12)  # with the mark after them: 99
_NOTE: Final = (
    "Medians of the rounds; a ratio is after / before, for as much work. +- is half the distance\n"
    "between the quartiles on the side where it is larger. A row beyond a bound was measured as\n"
    "often again, and is judged by all its rounds.\n"
)


class MeasurementFailed(Exception):
    """A benchmark ended with an error; the message is the last thing it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one run of a benchmark took, for so many things done."""

    wall: float
    cpu: float
    count: int

    def each(self, of: Time) -> float:
        """Give the seconds for one thing done: revisions may differ in how many they do."""
        seconds: float = getattr(self, of)
        return seconds / self.count


Measure = Callable[[Side, str], Measurement]
Progress = Callable[[str], None]


@dataclass(slots=True)
class Comparison:
    """One benchmark: what it took on each side, round by round."""

    name: str
    before: list[Measurement] = field(default_factory=list)
    after: list[Measurement] = field(default_factory=list)
    failure: str | None = None

    def values(self, side: Side, of: Time) -> list[float]:
        """Give the wall or CPU seconds of each round on a side."""
        return [getattr(each, of) for each in getattr(self, side)]

    def ratio(self, of: Time) -> float | None:
        """Give after / before, medians for one thing done; None if before took no time."""
        before, after = (
            statistics.median(measured.each(of) for measured in getattr(self, side))
            for side in SIDES
        )
        return after / before if before else None

    def spread(self, of: Time) -> float:
        """Give how far the rounds lie apart, as a part of the median, on the worse side."""
        return max(Spread(tuple(self.values(side, of))).relative for side in SIDES)

    @property
    def slower(self) -> tuple[str, ...]:
        """In what it is slower than its bound allows."""
        if self.failure is not None:
            return ()
        return tuple(of for of, bound in BOUNDS.items() if (self.ratio(of) or 0) > bound)

    def as_json(self) -> dict[str, Any]:
        """Give the row for a program."""
        if self.failure is not None:
            return {"name": self.name, "failure": self.failure}
        figures: dict[str, Any] = {of: self._figure(of) for of in BOUNDS}
        return {"name": self.name, **figures, "slower": list(self.slower)}

    def _figure(self, of: Time) -> dict[str, Any]:
        return {
            **{side: self.values(side, of) for side in SIDES},
            "ratio": self.ratio(of),
            "spread": self.spread(of),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """All rows, and the names that only one side has."""

    rows: Sequence[Comparison]
    only: Mapping[Side, Sequence[str]]
    rounds: int

    @property
    def is_slower(self) -> bool:
        """Whether a row is slower, or could not be measured."""
        return any(row.slower or row.failure for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """Give everything for a program."""
        return {
            "rounds": self.rounds,
            "bounds": BOUNDS,
            "rows": [row.as_json() for row in self.rows],
            "only": {side: list(names) for side, names in self.only.items()},
        }

    def __str__(self) -> str:
        """Give the table for people."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield _line(("", "", "wall, s", "", "", "cpu, s", "", ""))
        yield _line(("", *("before", "after", "ratio") * 2, ""))
        for row in self.rows:
            yield _line(_cells(row))
        for side, names in self.only.items():
            yield from (f"{name}: only {side}" for name in names)
        yield ""
        yield _NOTE
        yield self._verdict()

    def _verdict(self) -> str:
        slower = [row.name for row in self.rows if row.slower]
        failed = [row.name for row in self.rows if row.failure is not None]
        bounds = " or ".join(f"{bound - 1:.0%} in {of}" for of, bound in BOUNDS.items())
        said = (
            f"Slower by more than {bounds}: {', '.join(slower) or 'none'} ({self.rounds} rounds)."
        )
        return said + (f" Failed: {', '.join(failed)}." if failed else "")


def compare(
    names: Mapping[Side, Sequence[str]], measure: Measure, *, rounds: int, progress: Progress
) -> Compared:
    """Measure what both sides have, and what seems slower once more."""
    before, after = names["before"], names["after"]
    rows = [Comparison(name) for name in after if name in before]
    _measure_all(rows, measure, range(1, rounds + 1), progress)
    _measure_all(
        [row for row in rows if row.slower], measure, range(rounds + 1, 2 * rounds + 1), progress
    )
    only: dict[Side, Sequence[str]] = {
        "before": [name for name in before if name not in after],
        "after": [name for name in after if name not in before],
    }
    return Compared(rows=rows, only=only, rounds=rounds)


def _measure_all(
    rows: Sequence[Comparison], measure: Measure, rounds: range, progress: Progress
) -> None:
    """Measure rows in turns; the side that ends a round begins the next."""
    for round_ in rounds:
        for row in rows:
            for side in SIDES if round_ % 2 else SIDES[::-1]:
                if row.failure is None:
                    progress(f"round {round_} of {rounds[-1]}: {row.name}, {side}")
                    _add(row, side, measure)


def _add(row: Comparison, side: Side, measure: Measure) -> None:
    """Add a measurement to a row; what fails again ends the row, not the comparison."""
    failure = None
    for _ in range(ATTEMPTS):
        try:
            getattr(row, side).append(measure(side, row.name))
        except MeasurementFailed as failed:
            failure = f"failed {side}: {failed}"
        else:
            return
    row.failure = failure


def _cells(row: Comparison) -> tuple[str, ...]:
    """Give the texts of a row."""
    if row.failure is not None:
        return (row.name, row.failure)
    cells = [row.name]
    for of in BOUNDS:
        ratio = row.ratio(of)
        cells += [number(statistics.median(row.values(side, of))) for side in SIDES]
        cells.append("" if ratio is None else f"{ratio:.2f}x +-{row.spread(of):>3.0%}")
    return (*cells, f"slower: {', '.join(row.slower)}" if row.slower else "")


def _line(cells: Sequence[str]) -> str:
    """Align texts: numbers to the right, the name and what is said last to the left."""
    name, *numbers, last = cells
    padded = [cell.rjust(width) for cell, width in zip(numbers, _WIDTHS[1:], strict=False)]
    return "  ".join([" ".join([name.ljust(_WIDTHS[0]), *padded]), last])[:WIDTH].rstrip()
