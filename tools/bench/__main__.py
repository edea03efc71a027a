"""The command: ``python -m tools.bench [NAME ...] [--json FILE] [--quick] [--against REVISION]``.

With ``--against``, each benchmark is measured in alternation here and as another revision has it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sqlite3
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tools.bench.benchmark import TIMES, Setting
from tools.bench.catalogue import BENCHMARKS
from tools.bench.checkout import Checkout
from tools.bench.comparison import Measurement, Side, compare
from tools.bench.measure import synced_write
from tools.bench.result import run
from tools.bench.table import table
from tools.revision import ROOT, UnknownRevision, checked_out, short_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tools.bench.benchmark import Benchmark
    from tools.bench.result import Result

JSON_FORMAT: Final = 1
QUICK_SCALE: Final = 0.1
QUICK_ROUNDS: Final = 3
COMPARED_ROUNDS: Final = 5
_CLEAR: Final = "\r\x1b[K"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; give the exit code."""
    options = _parser().parse_args(arguments)
    if options.list:
        for benchmark in BENCHMARKS:
            print(f"{benchmark.name:20}{benchmark.title}")
        return 0
    if options.against:
        return _compare(options)
    chosen = [b for b in BENCHMARKS if not options.names or b.name in options.names]
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as directory:
        setting = Setting(Path(directory), QUICK_SCALE if options.quick else 1.0)
        machine = _machine(setting)
        results = _run_all(
            chosen, setting, options.rounds or (QUICK_ROUNDS if options.quick else 0)
        )
    print(_heading(machine, quick=options.quick))
    print(table(results), end="")
    if options.json:
        _write_json(options.json, as_json(results, machine, setting.scale))
    return int(options.check and any(result.missed for result in results))


def as_json(results: Sequence[Result], machine: dict[str, Any], scale: float) -> dict[str, Any]:
    """Give a whole run for a program."""
    return {
        "format": JSON_FORMAT,
        "machine": machine,
        "scale": scale,
        "benchmarks": [result.as_json() for result in results],
    }


def _parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description="Measure Perdure, each benchmark in turns with its baseline.",
    )
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="which to run; all by default", type=_known
    )
    parser.add_argument("--list", action="store_true", help="list the benchmarks and stop")
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="also write all figures to a file"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, within a minute")
    parser.add_argument("--rounds", metavar="N", type=_positive, help="rounds of each benchmark")
    parser.add_argument(
        "--dir", metavar="DIR", type=_directory, help="where to make temporary files"
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument(
        "--against",
        metavar="REVISION",
        type=_revision,
        help="compare with another revision, exit with 1 if something is slower",
    )
    return parser


def _known(name: str) -> str:
    """Take a benchmark's name."""
    names = [benchmark.name for benchmark in BENCHMARKS]
    if name not in names:
        raise argparse.ArgumentTypeError(f"no benchmark {name!r}; there are {', '.join(names)}")
    return name


def _revision(text: str) -> str:
    """Take a revision that git knows, as a hash."""
    try:
        return short_hash(text)
    except UnknownRevision as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _directory(text: str) -> Path:
    """Take a directory that exists, as a path that holds in child processes too."""
    path = Path(text).resolve()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {text!r}")
    return path


def _positive(text: str) -> int:
    """Take a number of rounds."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds")
    return int(text)


def _compare(options: argparse.Namespace) -> int:
    """Compare these sources with another revision; give the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # clean up first
    rounds = options.rounds or COMPARED_ROUNDS
    samples = QUICK_ROUNDS if options.quick else 1
    with (
        checked_out(options.against, parent=options.dir) as other,
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as name,
        _progress_cleared(),
    ):
        sides: dict[Side, Checkout] = {"before": Checkout.at(other), "after": Checkout.at(ROOT)}
        names = {side: _chosen(sides[side].names, options.names) for side in sides}
        figures = {benchmark.name: benchmark.compared for benchmark in BENCHMARKS}

        def measure(side: Side, benchmark: str) -> Measurement:
            return sides[side].measure(
                benchmark,
                samples=samples,
                figures=figures[benchmark],
                quick=options.quick,
                directory=Path(name),
            )

        machine = _machine(Setting(Path(name)))
        compared = compare(names, measure, rounds=rounds, progress=_tell)
    size = f"{rounds} round{'s' * (rounds > 1)}, {samples} sample{'s' * (samples > 1)} in each"
    print(_heading(machine, quick=options.quick), end="")
    print(f"{options.against} before, these files after, in turns; {size}\n")
    print(compared, end="")
    for row in compared.rows:
        if figures[row.name] != TIMES:
            first, second = figures[row.name]
            print(f"{row.name} is compared by {first} and {second}, not by its times.")
    if options.json:
        _write_json(options.json, {"machine": machine, **compared.as_json()})
    return int(compared.is_slower)


def _chosen(names: Sequence[str], asked: Sequence[str]) -> list[str]:
    """Give those that were asked for; all if none was."""
    return [name for name in names if not asked or name in asked]


def _run_all(chosen: Sequence[Benchmark], setting: Setting, rounds: int) -> list[Result]:
    """Run benchmarks one after the other; 0 rounds leaves their number to each."""
    with _progress_cleared():
        return [run(b, setting, rounds=rounds or None, progress=_tell) for b in chosen]


def _write_json(path: Path, report: dict[str, Any]) -> None:
    """Write a report for a program."""
    path.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


@contextmanager
def _progress_cleared() -> Iterator[None]:
    """Leave no half line on the terminal."""
    try:
        yield
    finally:
        if sys.stderr.isatty():
            print(_CLEAR, end="", file=sys.stderr, flush=True)


def _tell(progress: str) -> None:
    """Say on stderr what is going on: in one line on a terminal, in many in a file."""
    if sys.stderr.isatty():
        print(_CLEAR + progress, end="", file=sys.stderr, flush=True)
    else:
        print(progress, file=sys.stderr, flush=True)


def _machine(setting: Setting) -> dict[str, Any]:
    """Say what the figures depend on, and nothing that names the machine."""
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.system(),
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "synced_write_ms": synced_write(setting.directory),
    }


def _heading(machine: dict[str, Any], *, quick: bool) -> str:
    """Say in a line what the table depends on."""
    size = "a tenth size" if quick else "full size"
    return (
        f"Python {machine['python']}, SQLite {machine['sqlite']}, {machine['cpus']} CPUs,"
        f" load {machine['load']:.1f}; a synced write takes {machine['synced_write_ms']:.2f} ms;"
        f" {size}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
