"""A listing read beside the process that keeps it, or after it, without touching its file.

What the file lacks is folded into tables in memory that lie over those of the file.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING

from perdure.eventlog.store import Bounds
from perdure.runtime.kernel.listing import ListingFile
from perdure.runtime.kernel.projection import Projection, has_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from perdure.eventlog.record import Record
    from perdure.eventlog.store import Store, StoredPage
    from perdure.runtime.kernel.listing import Listing


class Overlay(Projection):
    """Tables that another process keeps, at one moment, with newer records over them."""

    def __init__(self, listing: Listing, path: Path) -> None:
        """Open the file for reading only, or raise sqlite3.Error."""
        self._listing = listing
        super().__init__(_opened(listing, path))

    def lay_over(self, records: Iterable[Record]) -> None:
        """Take in records that the file does not have."""
        with self.reading() as database:
            self._listing.fold_all(database, records)


def _opened(listing: Listing, path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        check_same_thread=False,
        isolation_level=None,
    )
    try:
        for statement in listing.overlay if has_tables(database, listing.version) else ():
            database.execute(statement)
        database.execute("BEGIN")  # from here on the file stands still
    except BaseException:
        database.close()
        raise
    return database


def read_listing(listing: Listing, path: Path, store: Store) -> Projection:
    """Open a listing beside the process that keeps it, with all that the log holds.

    Nothing is written. A file that is missing, damaged or of another log is passed over, and the
    log folded from its beginning.
    """
    overlay: Overlay | None = None
    with suppress(sqlite3.Error):
        overlay = Overlay(listing, path)
        mark = overlay.place(store)
        if mark is not None:
            for page in _pages(store, mark.position):
                overlay.lay_over(page.records)
            return overlay
    if overlay is not None:
        overlay.close()
    tables = ListingFile(listing)
    for page in _pages(store, 0):
        tables.take_in(page.records, store.generation, page.head)
    return tables


def _pages(store: Store, position: int) -> Iterator[StoredPage]:
    while True:
        page = store.read_all(position, Bounds(pass_damage=True))
        yield page
        if not page.more:
            return
        position = page.records[-1].position
