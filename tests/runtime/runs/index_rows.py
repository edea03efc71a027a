"""Everything that a directory of runs holds."""

from __future__ import annotations

from typing import Any

from perdure.runtime.runs.index import RunTables


def rows(directory: RunTables) -> list[tuple[Any, ...]]:
    """Give all rows: two directories of one log are equal."""
    with directory._projection.reading() as database:
        runs = database.execute("SELECT * FROM runs ORDER BY position").fetchall()
        intervals = database.execute("SELECT * FROM intervals ORDER BY begins")
        return [*runs, *intervals]
