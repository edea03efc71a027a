"""A directory with sources whose own benchmarks are run, each measurement in a process of its own.

Its sources come first on the path of that process and of every process it starts. The probe makes
sure of it: an editable install of another directory must not stand in for a module.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

from tools.bench.benchmark import TIMES
from tools.bench.comparison import Measurement, MeasurementFailed

JSON_FORMAT: Final = 1  # of `tools.bench --json`, since the first revision that had it
OWN: Final = ("actors", "eventlog", "perdure", "runtime", "tools")
_PROBE: Final = f"""
import json, os, sys
from tools.bench.catalogue import BENCHMARKS
own = (m for name, m in sys.modules.items() if name.partition(".")[0] in {OWN})
files = [os.path.abspath(m.__file__) for m in own if getattr(m, "__file__", None)]
json.dump({{"names": [b.name for b in BENCHMARKS], "files": files}}, sys.stdout)
"""


class ForeignSources(Exception):
    """A checkout would measure modules that are not its own."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """Sources at a root, and the names of their benchmarks."""

    root: Path
    names: tuple[str, ...]

    @classmethod
    def at(cls, root: Path) -> Self:
        """Ask the sources at a root what they can measure, and make sure that they are measured."""
        found = json.loads(_python(root, "-c", _PROBE))
        foreign = [file for file in found["files"] if not Path(file).is_relative_to(root)]
        if foreign:
            raise ForeignSources(f"{root} would measure the code of {', '.join(foreign[:3])}")
        return cls(root, tuple(found["names"]))

    def measure(
        self,
        name: str,
        *,
        samples: int,
        figures: tuple[str, str] = TIMES,
        quick: bool = False,
        directory: Path | None = None,
    ) -> Measurement:
        """Run one benchmark once; give two of its figures, medians of so many samples."""
        with TemporaryDirectory(dir=directory) as scratch:
            report = Path(scratch, "report.json")
            options = ["--rounds", str(samples), "--dir", scratch, "--json", str(report)]
            _python(self.root, "-m", "tools.bench", name, *options, *(["--quick"] if quick else []))
            return _measurement(json.loads(report.read_text("utf-8")), name, figures)


def _python(root: Path, *arguments: str) -> str:
    """Run Python on the sources at a root; give what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        last = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise MeasurementFailed(last)
    return done.stdout


def _measurement(report: dict[str, Any], name: str, figures: tuple[str, str]) -> Measurement:
    """Find two figures of a benchmark in a report."""
    if report["format"] != JSON_FORMAT:
        raise MeasurementFailed(f"its report has format {report['format']}, not {JSON_FORMAT}")
    (benchmark,) = (each for each in report["benchmarks"] if each["name"] == name)
    found = {figure["figure"]: figure["ours"]["median"] for figure in benchmark["figures"]}
    wall, cpu = (found[figure] for figure in figures)
    return Measurement(wall=wall, cpu=cpu, count=benchmark["count"])
