"""Benchmarks: what is measured beside what, and where it should end up.

A benchmark is a value. Its ``prepare`` opens two *sides*, ours and the baseline, which then run in
turns. To add one, write its sides in a module of its area and put it into ``catalogue.BENCHMARKS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tools.bench.measure import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    Side = Callable[[], Sample]


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a run keeps its files, and how large it is: 1 is the full size."""

    directory: Path
    scale: float = 1.0

    def size(self, full: int, least: int = 1) -> int:
        """Give the size of something at this scale."""
        return max(least, round(full * self.scale))

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give an empty directory for the length of a block."""
        with TemporaryDirectory(dir=self.directory) as name:
            yield Path(name)


class Sides(NamedTuple):
    """Two things to run in turns; each call is one round."""

    ours: Side
    baseline: Side


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a figure of ours, or on its ratio to the baseline's."""

    sense: Literal[">=", "<="]
    bound: float
    of: Literal["ours", "ratio"] = "ratio"

    def reached_by(self, value: float) -> bool:
        """Tell whether a value is within the bound."""
        return value >= self.bound if self.sense == ">=" else value <= self.bound

    def __str__(self) -> str:
        """Give the bound as people write it."""
        return f"{self.sense} {self.bound:g}{'x' if self.of == 'ratio' else ''}"


TIMES: Final = ("wall, s", "cpu, s")  # which every result has


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the table: what a sample calls it, what people call it, what it should be."""

    key: str
    label: str
    target: Target | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One measurement. ``compare`` makes further figures of ours from the two samples of a round.

    ``counted`` names what a sample counts; without it there is no rate, only its figures.
    ``compared`` are the two figures by which revisions are compared.
    """

    name: str
    title: str
    baseline: str
    prepare: Callable[[Setting], AbstractContextManager[Sides]]
    counted: str = ""
    rate: Target | None = None
    figures: Sequence[Figure] = ()
    compare: Callable[[Sample, Sample], Mapping[str, float]] | None = None
    rounds: int = 5
    compared: tuple[str, str] = TIMES
