"""Everything that an index of runs holds."""

from __future__ import annotations

from typing import Any

from perdure.runtime.kernel.projection import Projection


def rows(tables: Projection) -> list[tuple[Any, ...]]:
    """Give all rows: two indexes of one log are equal."""
    with tables.reading() as database:
        runs = database.execute("SELECT * FROM runs ORDER BY position").fetchall()
        intervals = database.execute("SELECT * FROM intervals ORDER BY begins")
        return [*runs, *intervals]
