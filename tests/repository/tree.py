"""The repository as the tests of this directory see it."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("eventlog", "actors", "runtime", "perdure")  # all of them ship, in the package perdure
PACKAGES = ("perdure.eventlog", "perdure.actors", "perdure.runtime", "perdure")
SUBPACKAGES = (
    "perdure.runtime.cli",
    "perdure.runtime.port",
)  # those whose names are a decision too

# Made by tools or by running the program; never committed.
_MADE = re.compile(r"\.(?!ci$|gitignore$|editorconfig$).*|build|dist|__pycache__|.*\.egg-info")


def files() -> Iterator[Path]:
    """Every file that people wrote."""
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if path.is_file() and not any(_MADE.fullmatch(part) for part in parts):
            yield path


def python_files() -> Iterator[Path]:
    """Every Python file that people wrote."""
    return (path for path in files() if path.suffix == ".py")


def name(path: Path) -> str:
    """A file's path as people write it."""
    return path.relative_to(ROOT).as_posix()
