"""Everything that an index of runs holds."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from perdure.runtime.kernel.listing import ListingFile
from perdure.runtime.kernel.projection import Projection
from perdure.runtime.runs.index import RUN_LISTING


def rows(tables: Projection | None) -> list[tuple[Any, ...]]:
    """Give all rows: two indexes of one log are equal."""
    assert tables is not None
    with tables.reading() as database:
        return [
            row
            for table in RUN_LISTING.tables
            for row in sorted(database.execute(f"SELECT * FROM {table.name}"))  # noqa: S608
        ]


def rows_in(path: Path) -> list[tuple[Any, ...]]:
    """Give all rows in a file."""
    with closing(ListingFile(RUN_LISTING, path)) as tables:
        tables.open()
        return rows(tables)
