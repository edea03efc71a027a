"""The command: ``python -m tools.mutants [--report]``.

mutmut makes the mutants and runs the tests; ``[tool.mutmut]`` in pyproject.toml says of what and
which. It works in a directory of its own and always starts afresh, because it would not try a
mutant again when only a test has changed. It leaves constants, class bodies and decorated
functions, properties among them, as they are.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Final

from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files

from tools.mutants.score import BadExclusion, Mutant, Score, changed_lines, read_exclusions

ROOT: Final = Path(__file__).parents[2]
WORK: Final = ROOT / ".mutants"
EXCLUSIONS: Final = Path(__file__).with_name("exclusions.toml")
MUTMUT: Final = Path(sys.executable).with_name("mutmut")
NEEDED: Final = ("perdure", "tests", "tools", "pyproject.toml")  # the folders through perdure


def main(arguments: Sequence[str] | None = None) -> int:
    """Try every mutant, print the score; give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("--report", action="store_true", help="of the last run, without a new one")
    options = parser.parse_args(arguments)
    try:
        exclusions = read_exclusions(EXCLUSIONS.read_text("utf-8"))
    except BadExclusion as error:
        print(error, file=sys.stderr)
        return 2
    if not options.report:
        prepare()
        try_all()
    score = Score(results(), exclusions)
    print(score.report(), end="")
    return 0 if score.is_enough else 1


def prepare() -> None:
    """Make a directory in which mutmut finds what it needs, and nothing of an earlier run."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    for name in NEEDED:
        (WORK / name).symlink_to(ROOT / name)


def try_all() -> None:
    """Let mutmut work. Its moving line is for a terminal, and goes into a file otherwise."""
    if sys.stdout.isatty():
        subprocess.run([MUTMUT, "run"], cwd=WORK, check=True)
        return
    log = WORK / "mutmut.log"
    with log.open("wb") as output:
        done = subprocess.run(
            [MUTMUT, "run"], cwd=WORK, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        print(log.read_text("utf-8", errors="replace"), file=sys.stderr)
        done.check_returncode()


def results() -> list[Mutant]:
    """Read what became of each mutant, and the changes that nobody noticed."""
    with chdir(WORK):
        return [mutant for path in walk_mutatable_files() for mutant in _results_of(path)]


def _results_of(path: Path) -> Iterator[Mutant]:
    data = SourceFileMutationData(path=path)
    data.load()
    for name, code in data.exit_code_by_key.items():
        mutant = Mutant(name, status_by_exit_code[code])
        if not mutant.is_killed:
            before, after = changed_lines(get_diff_for_mutant(name, path=path))
            mutant = replace(mutant, before=before, after=after)
        yield mutant


if __name__ == "__main__":
    sys.exit(main())
