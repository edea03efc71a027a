"""Samples and their spread: what one round measured, and what several rounds say together."""

from __future__ import annotations

import gc
import os
import resource
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MILLISECONDS: Final = 1e3
_PROBES: Final = 20
_PROBE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One round of one side: seconds, the number of things done, and named figures."""

    wall: float
    cpu: float
    count: int
    figures: Mapping[str, float] = field(default_factory=dict)


class Stopwatch:
    """Wall time and CPU time of a block, of all threads and of children that were waited for.

    What earlier rounds left behind is collected before the clock starts.
    """

    wall: float = 0.0
    cpu: float = 0.0

    def __enter__(self) -> Self:
        """Start."""
        gc.collect()
        self._cpu = _cpu_seconds()
        self._wall = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.wall = time.perf_counter() - self._wall
        self.cpu = _cpu_seconds() - self._cpu

    def sample(self, count: int, figures: Mapping[str, float] | None = None) -> Sample:
        """Give what was measured, for so many things done."""
        return Sample(wall=self.wall, cpu=self.cpu, count=count, figures=figures or {})


@dataclass(frozen=True, slots=True)
class Spread:
    """The values of one figure over all rounds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def relative(self) -> float:
        """Half the distance between the quartiles, as a part of the median."""
        half = (quantile(self.values, 0.75) - quantile(self.values, 0.25)) / 2
        return abs(half / self.median) if self.median else 0.0

    def as_json(self) -> dict[str, Any]:
        """Give the numbers that a program would want."""
        return {
            "median": self.median,
            "q1": quantile(self.values, 0.25),
            "q3": quantile(self.values, 0.75),
            "min": min(self.values),
            "max": max(self.values),
            "values": list(self.values),
        }


def quantile(values: Sequence[float], part: float) -> float:
    """Give the value below which this part of all values lies, between neighbours by proportion."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def latencies(seconds: Sequence[float]) -> dict[str, float]:
    """Give the median and the 99th percentile of latencies, in milliseconds."""
    return {
        "p50": quantile(seconds, 0.5) * MILLISECONDS,
        "p99": quantile(seconds, 0.99) * MILLISECONDS,
    }


def synced_write(directory: Path) -> float:
    """Give the median milliseconds that one synced write of a page takes in a directory."""
    probe = directory / "probe"
    seconds = []
    with probe.open("wb", buffering=0) as file:
        for _ in range(_PROBES):
            start = time.perf_counter()
            file.write(bytes(_PROBE_BYTES))
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - start)
    probe.unlink()
    return statistics.median(seconds) * MILLISECONDS


def _cpu_seconds() -> float:
    """CPU time of this process with all its threads, and of its children so far."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
