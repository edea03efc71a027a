"""The long versions of tests, in parts: ``python -m tools.soak [PART ...]``.

What a part came to is a row of ``docs/soak.md``, to be committed: when, of which revision, how
much, how long. Each of its tests that names acceptance items has a row too.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from xml.etree import ElementTree as ET

from tools.revision import ROOT
from tools.soak_record import FIGURES, ITEMS, PARTS_HEADING, TESTS_HEADING, SoakedTest, recorded

RECORD: Final = ROOT / "docs" / "soak.md"
CRASH: Final = "tests/crash"
SIMULATION: Final = "tests/simulation"
SCHEMATHESIS: Final = "tests/runtime/http/test_schemathesis.py"
EXAMPLES: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Runs of pytest, and how much they are in words."""

    volume: str
    runs: Sequence[Sequence[str]]
    variables: Mapping[str, str] = field(default_factory=dict)


PARTS: Final[Mapping[str, Part]] = {
    "crash": Part(
        volume="hundreds of kill -9, 40,000 power cuts, every failing call, 10,000 flipped bits",
        runs=[("-m", "soak", "--numprocesses=auto", CRASH)],
    ),
    "fuzz": Part(
        volume=f"{EXAMPLES:,} examples for each test, 300 for each address of the document",
        runs=[("-m", "fuzz"), ("-m", "soak", SCHEMATHESIS)],
        variables={"FUZZ_EXAMPLES": str(EXAMPLES)},
    ),
    "server": Part(
        volume="40 kills of a server under load, 200 runs a second, all that is in no other part",
        runs=[("-m", "soak", *(f"--ignore={path}" for path in (CRASH, SIMULATION, SCHEMATHESIS)))],
    ),
    "simulation": Part(
        volume="100,000 worlds of the log, 4,000 of runs",
        runs=[("-m", "soak", SIMULATION)],
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a part."""

    passed: int
    failed: int
    seconds: float
    tests: Sequence[SoakedTest] = ()  # those that name acceptance items

    @property
    def is_good(self) -> bool:
        """Whether something was tried, and nothing failed."""
        return self.passed > 0 and not self.failed

    def __str__(self) -> str:
        """Give the result for the table."""
        return f"{self.passed} passed" + (f", {self.failed} failed" if self.failed else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run parts and record them; give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    parser.add_argument(
        "parts", metavar="PART", nargs="*", help=f"{', '.join(PARTS)}; all by default", type=_known
    )
    parser.add_argument(
        "--pytest", metavar="OPTIONS", default="", help="for pytest; the result is not recorded"
    )
    options = parser.parse_args(arguments)
    good = True
    for name in options.parts or PARTS:
        print(f"-- {name}: {PARTS[name].volume}", flush=True)
        outcome = run(PARTS[name], shlex.split(options.pytest))
        print(f"-- {name}: {outcome} in {outcome.seconds:.0f} s", flush=True)
        good = good and outcome.is_good
        if not options.pytest:
            text = RECORD.read_text("utf-8")
            text = recorded(text, PARTS_HEADING, name, [_cells(name, outcome)])
            text = recorded(text, TESTS_HEADING, name, [test.cells() for test in outcome.tests])
            RECORD.write_text(text, "utf-8")
    return 0 if good else 1


def run(part: Part, options: Sequence[str] = ()) -> Outcome:
    """Run all of a part, whatever fails."""
    start = time.monotonic()
    cases: list[SoakedTest] = []
    failed_runs = 0
    with TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        for arguments in part.runs:
            report.unlink(missing_ok=True)
            command = [sys.executable, "-m", "pytest", f"--junit-xml={report}", *arguments]
            done = subprocess.run(
                [*command, *options], cwd=ROOT, env={**os.environ, **part.variables}, check=False
            )
            came = list(_cases(report))
            cases += came
            if done.returncode != 0 and not any(case.outcome == "failed" for case in came):
                failed_runs += 1  # before any test, or after all
    return Outcome(
        passed=sum(case.outcome == "passed" for case in cases),
        failed=sum(case.outcome == "failed" for case in cases) + failed_runs,
        seconds=time.monotonic() - start,
        tests=named_items(cases),
    )


def named_items(cases: Iterable[SoakedTest]) -> list[SoakedTest]:
    """Put the variants of each test that names items together: one that did not pass decides."""
    tests: dict[str, SoakedTest] = {}
    for case in cases:
        before = tests.get(case.test, case)
        worse = before if before.outcome != "passed" else case
        tests[case.test] = replace(worse, figures=case.figures or before.figures)
    return [test for test in tests.values() if test.items]


def _known(name: str) -> str:
    """Take the name of a part."""
    if name not in PARTS:
        raise argparse.ArgumentTypeError(f"no part {name!r}; there are {', '.join(PARTS)}")
    return name


def _cells(name: str, outcome: Outcome) -> list[str]:
    """Give a row without its first cell."""
    git = ("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*")
    revision = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    today = datetime.now(UTC).date().isoformat()
    return [today, revision, PARTS[name].volume, f"{outcome.seconds:.0f}", str(outcome)]


def _cases(report: Path) -> Iterator[SoakedTest]:
    """Read what pytest has reported, test by test."""
    if not report.exists():
        return
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - pytest wrote it
        kinds = {child.tag for child in case}
        failed, skipped = kinds & {"failure", "error"}, "skipped" in kinds
        properties = {each.get("name"): each.get("value", "") for each in case.iter("property")}
        name = case.get("name", "").partition("[")[0]
        yield SoakedTest(
            test=f"{case.get('classname')}.{name}",
            items=frozenset(properties.get(ITEMS, "").split()),
            outcome="failed" if failed else "skipped" if skipped else "passed",
            figures=properties.get(FIGURES, ""),
        )


if __name__ == "__main__":
    sys.exit(main())
