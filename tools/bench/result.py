"""Results: the rounds of a benchmark, run in turns with its baseline, and the figures they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tools.bench.benchmark import TIMES, Benchmark, Target
from tools.bench.measure import Sample, Spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.bench.benchmark import Figure, Setting

    Values = Callable[[Sample], float | None]
    Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure over all rounds. The ratio is taken round by round, then its median."""

    label: str
    ours: Spread | None
    baseline: Spread | None
    ratio: Spread | None
    target: Target | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the target is met; None without a target."""
        if self.target is None:
            return None
        judged = self.ratio if self.target.of == "ratio" else self.ours
        return judged is not None and self.target.reached_by(judged.median)

    def as_json(self) -> dict[str, Any]:
        """Give the row for a program."""
        return {
            "figure": self.label,
            "ours": self.ours and self.ours.as_json(),
            "baseline": self.baseline and self.baseline.as_json(),
            "ratio": self.ratio and self.ratio.as_json(),
            "target": None if self.target is None else str(self.target),
            "reached": self.reached,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """A benchmark and the samples of its rounds, in pairs of ours and the baseline's."""

    benchmark: Benchmark
    pairs: Sequence[tuple[Sample, Sample]]

    @property
    def rows(self) -> list[Row]:
        """All figures, wall and CPU time first."""
        benchmark = self.benchmark
        wall, cpu = TIMES
        rows = [
            self._row(wall, lambda sample: sample.wall),
            self._row(cpu, lambda sample: sample.cpu),
        ]
        if benchmark.counted:
            rate = f"{benchmark.counted}/s"
            rows.append(self._row(rate, lambda s: s.count / s.wall, benchmark.rate))
            rows.append(self._row("cpu us each", lambda s: s.cpu / s.count * 1e6))
        return rows + [self._figure(figure) for figure in benchmark.figures]

    @property
    def missed(self) -> bool:
        """Whether a target was missed."""
        return any(row.reached is False for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """Give everything for a program."""
        return {
            "name": self.benchmark.name,
            "title": self.benchmark.title,
            "baseline": self.benchmark.baseline,
            "rounds": len(self.pairs),
            "counted": self.benchmark.counted or None,
            "count": self.pairs[0][0].count,
            "figures": [row.as_json() for row in self.rows],
        }

    def _row(self, label: str, value: Values, target: Target | None = None) -> Row:
        """Give the row of a value that both sides may have."""
        ours = [value(ours) for ours, _ in self.pairs]
        baseline = [value(baseline) for _, baseline in self.pairs]
        ratio = [
            o / b if o is not None and b else None for o, b in zip(ours, baseline, strict=True)
        ]
        return Row(
            label=label,
            ours=_spread(ours),
            baseline=_spread(baseline),
            ratio=_spread(ratio),
            target=target,
        )

    def _figure(self, figure: Figure) -> Row:
        """Give the row of a named figure, from the samples or from their comparison."""
        compare = self.benchmark.compare
        compared = [{} if compare is None else compare(*pair) for pair in self.pairs]
        if compare is None or figure.key not in compared[0]:
            return self._row(figure.label, lambda s: s.figures.get(figure.key), figure.target)
        ours = _spread([figures[figure.key] for figures in compared])
        return Row(label=figure.label, ours=ours, baseline=None, ratio=None, target=figure.target)


def run(
    benchmark: Benchmark, setting: Setting, *, rounds: int | None = None, progress: Progress
) -> Result:
    """Run a benchmark's two sides in turns."""
    rounds = rounds or benchmark.rounds
    pairs = []
    progress(f"{benchmark.name}: preparing")
    with benchmark.prepare(setting) as sides:
        for number in range(1, rounds + 1):
            progress(f"{benchmark.name}: round {number} of {rounds}")
            ours = sides.ours()
            progress(f"{benchmark.name}: round {number} of {rounds}, baseline")
            pairs.append((ours, sides.baseline()))
    return Result(benchmark, pairs)


def _spread(values: Sequence[float | None]) -> Spread | None:
    """Give the spread of what is known."""
    known = tuple(value for value in values if value is not None)
    return Spread(known) if known else None
