"""The file of a projection: made if it is missing, thrown away if it cannot be used.

A projection holds nothing that is not in the log, so it is consistent but not durable.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from eventlog.private import make_private

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def open_projection(path: Path | str, schema: Sequence[str], version: int) -> sqlite3.Connection:
    """Open the file of a projection, or make it; one that cannot be used is started anew."""
    try:
        return _open(path, schema, version)
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise
        discard(path)
        return _open(path, schema, version)


def discard(path: Path | str) -> None:
    """Throw the file of a projection away."""
    if not isinstance(path, str):
        for part in ("", "-wal", "-shm"):
            path.with_name(path.name + part).unlink(missing_ok=True)


def has_tables(database: sqlite3.Connection, version: int) -> bool:
    """Tell a projection from an empty file; raise if it is of another format."""
    (found,) = database.execute("PRAGMA user_version").fetchone()
    if found not in {0, version}:
        raise sqlite3.DatabaseError(f"a projection of format {found}")
    return bool(found)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Tell a file that is broken or not ours from one that is only busy."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def _open(path: Path | str, schema: Sequence[str], version: int) -> sqlite3.Connection:
    if not isinstance(path, str):
        make_private(path)
    database = sqlite3.connect(path, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        if not has_tables(database, version):
            with database:
                for statement in schema:
                    database.execute(statement)
    except BaseException:
        database.close()
        raise
    return database
