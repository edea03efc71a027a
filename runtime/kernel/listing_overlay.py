"""A listing read beside the process that keeps it, or after it, without touching its file.

Rows that the file lacks are folded into tables in memory that lie over those of the file.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from perdure.eventlog.record import START, Mark
from perdure.eventlog.sqlite.file import read_only_uri
from perdure.eventlog.store import Bounds
from perdure.runtime.kernel.listing import ListingFile
from perdure.runtime.kernel.projection import Projection, connected, has_tables
from perdure.runtime.kernel.table import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from perdure.eventlog.record import Record
    from perdure.eventlog.store import Store
    from perdure.runtime.kernel.listing import Listing, Query

Result = TypeVar("Result")


class Overlay(Projection):
    """Tables that another process keeps, at one moment, with newer records over them."""

    def __init__(self, listing: Listing, path: Path) -> None:
        """Open the file for reading only, or raise sqlite3.Error."""
        self._database = connected(read_only_uri(path), ())
        try:
            for table in listing.tables if has_tables(self._database, listing.version) else ():
                for statement in table.overlay:
                    self._database.execute(statement)
            self._database.execute("BEGIN")  # from here on the file stands still
        except BaseException:
            self.close()
            raise
        self.rows = Rows(self._database, over=True)

    @contextmanager
    def reading(self, _: Callable[[], bool] | None = None) -> Iterator[sqlite3.Connection]:
        """Ask the database; nobody else does, and nothing interrupts it."""
        yield self._database

    def close(self) -> None:
        """Close the database."""
        self._database.close()


class StoredListing:
    """A listing with all that the log holds, read when it is asked, and again for newer records."""

    def __init__(self, listing: Listing, path: Path, store: Store) -> None:
        """Nothing is opened yet, and nothing will be written."""
        self._listing = listing
        self._path = path
        self._store = store
        self._mark = START
        self.tables: Projection | None = None

    async def ask(self, query: Query[Result], at: Mark | None = None) -> tuple[Result, Mark]:
        """Answer a query, and say at which place this is true."""
        if self.tables is None or (at or self._store.head()).position > self._mark.position:
            self.close()
            self.tables = self._read()
        past = at.position if at is not None and at < self._mark else None
        with self.tables.reading() as database:
            return query(database, past), at or self._mark

    def close(self) -> None:
        """Close the tables."""
        if self.tables is not None:
            self.tables.close()

    def _read(self) -> Projection:
        """Read the file and the rest of the log.

        A file that is missing, damaged or of another log is passed over, and the log folded from
        its beginning.
        """
        overlay: Overlay | None = None
        with suppress(sqlite3.Error, OSError):
            overlay = Overlay(self._listing, self._path)
            mark = overlay.place(self._store)
            if mark is not None:
                for records in self._pages(mark.position):
                    self._listing.fold_all(overlay.rows, records)
                return overlay
        if overlay is not None:
            overlay.close()
        tables = ListingFile(self._listing)
        tables.open()
        for records in self._pages(0):
            tables.take_in(records, self._store.generation, self._mark)
        return tables

    def _pages(self, position: int) -> Iterator[list[Record]]:
        """Read the records after a position that concern the listing."""
        while True:
            page = self._store.read_all(position, Bounds(pass_damage=True))
            self._mark = page.records[-1].mark if page.more else page.head
            yield list(filter(self._listing.where.matches, page.records))
            if not page.more:
                return
            position = self._mark.position
