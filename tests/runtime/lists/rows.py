"""Everything that a directory of runs holds."""

from __future__ import annotations

from typing import Any

from runtime.lists.directory import Directory


def rows(directory: Directory) -> list[tuple[Any, ...]]:
    """Give all rows: two directories of one log are equal."""
    with directory._lock:
        runs = directory._database.execute("SELECT * FROM runs ORDER BY position").fetchall()
        intervals = directory._database.execute("SELECT * FROM intervals ORDER BY begins")
        return [*runs, *intervals]
