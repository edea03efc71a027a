"""Witnesses: files beside the log that know how far it has come.

A projection holds only what was on disk in the log first. If it has seen a later position than the
log has, the log has lost its end: its write-ahead log was deleted or cut, say.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from perdure.eventlog.sqlite.file import read_only_uri
from perdure.eventlog.store import Witness

if TYPE_CHECKING:
    from pathlib import Path

    from perdure.runtime.kernel.data_directory import DataDir


def witness_of(data: DataDir, generation: str) -> Witness | None:
    """Find the file that has seen most of the log of this generation, if there is any."""
    files = [path for path in data.path.glob("*.db") if path.resolve() != data.log]
    seen = [Witness(str(path), _position_in(path, generation)) for path in files]
    return max(seen, key=lambda each: each.position, default=None)


def _position_in(path: Path, generation: str) -> int:
    """Give the position that a projection has reached; 0 if this is none, or of another log."""
    with (
        suppress(sqlite3.Error, UnicodeDecodeError, OSError),
        closing(sqlite3.connect(read_only_uri(path), uri=True)) as database,
    ):
        statement = "SELECT max(position) FROM place WHERE generation = ?"
        (position,) = database.execute(statement, (generation,)).fetchone()
        return position if isinstance(position, int) else 0
    return 0
