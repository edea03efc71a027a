"""A listing: which actors there are, folded from the log into tables of a file of its own."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from perdure.eventlog.errors import UnreadableRecord
from perdure.eventlog.filter import Filter
from perdure.eventlog.record import Record
from perdure.runtime.kernel.projection import ProjectionFile

if TYPE_CHECKING:
    from pathlib import Path

    from perdure.eventlog.record import Mark

IN_MEMORY: Final = ":memory:"
_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"
_log = logging.getLogger("perdure.listing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The tables of a listing, and how a record changes them.

    ``overlay`` lays tables of the same shape, in memory, over those of a file that is only read.
    """

    name: str  # of its file, without an ending
    version: int  # of its tables; a file of another version is built anew
    schema: tuple[str, ...]
    overlay: tuple[str, ...]
    where: Filter  # which records concern it
    fold: Callable[[sqlite3.Connection, Record], None]  # twice or not concerned: no change

    def fold_all(self, database: sqlite3.Connection, records: Iterable[Record]) -> None:
        """Bring the tables up to date with records; one that cannot be read is passed over."""
        for record in records:
            try:
                self.fold(database, record)
            except UnreadableRecord:
                _log.exception(
                    "record %d cannot be read and is missing from %s", record.position, self.name
                )


class ListingFile(ProjectionFile):
    """The tables of a listing in a file. Synchronous; called from a thread."""

    def __init__(self, listing: Listing, path: Path | str = IN_MEMORY) -> None:
        """Open the file, or make it. A damaged or foreign one is started anew."""
        self.listing = listing
        super().__init__(path, listing.schema, listing.version)

    def start_anew(self) -> None:
        """Forget everything."""
        with self.writing() as database:
            for (table,) in database.execute(_TABLES).fetchall():
                database.execute(f"DELETE FROM {table}")  # noqa: S608 - names of our own

    def take_in(self, records: Iterable[Record], generation: str, upto: Mark) -> None:
        """Take in records and move the place mark."""
        with self.writing() as database:
            self.listing.fold_all(database, records)
            self.move_to(generation, upto)
