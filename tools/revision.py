"""Other revisions of the repository, as files in a temporary directory.

They come from ``git archive``: git keeps no record of such a directory, so even a killed program
leaves nothing behind in the repository.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[1]


class UnknownRevision(Exception):
    """Git does not know the revision."""


def short_hash(revision: str, repository: Path = ROOT) -> str:
    """Give the short hash of a revision."""
    commit = f"{revision}^{{commit}}"
    git = ("git", "-C", str(repository), "rev-parse", "--short", "--verify", "--end-of-options")
    done = subprocess.run([*git, commit], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnknownRevision(f"git knows no revision {revision!r}: {done.stderr.strip()}")
    return done.stdout.strip().splitlines()[-1]


@contextmanager
def checked_out(
    revision: str, *, repository: Path = ROOT, parent: Path | None = None
) -> Iterator[Path]:
    """Give a directory with the files of a revision, for the length of a block."""
    git = (
        "git",
        "-C",
        str(repository),
        "archive",
        "--format=tar",
        short_hash(revision, repository),
    )
    archive = subprocess.run(git, capture_output=True, check=True).stdout
    with TemporaryDirectory(prefix="revision-", dir=parent) as name:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(name, filter="data")
        yield Path(name).resolve()
