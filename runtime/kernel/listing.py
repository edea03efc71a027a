"""A listing: which actors there are, folded from the log into tables of a file of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from perdure.eventlog import cbor
from perdure.eventlog.errors import UnreadableRecord
from perdure.eventlog.filter import Filter
from perdure.eventlog.record import START, Record
from perdure.eventlog.store import PAGE_RECORDS, Bounds
from perdure.runtime.kernel.projection import (
    IN_MEMORY,
    ProjectionFile,
    move_place,
    place_in,
)
from perdure.runtime.kernel.table import Rows, Table

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable
    from pathlib import Path

    from perdure.eventlog.record import Mark
    from perdure.eventlog.store import Store

    # Asked of the tables as they are, or of the past: as things stood at a position.
    Query = Callable[[sqlite3.Connection, int | None], "Result"]

Result = TypeVar("Result")
UNREADABLE: Final = (UnreadableRecord, cbor.DecodeError)  # what damaged records raise
_PASSED: Final = "CREATE TABLE passed (position INTEGER PRIMARY KEY, about TEXT)"
_TRIED: Final = 100  # passed records that are tried again at a start
_log = logging.getLogger("perdure.listing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The tables of a listing, and how records change them.

    ``read`` gives what a record changes, or None; ``fold`` puts the changes of many records, in
    their order. Each record is folded once.
    """

    name: str  # of its file, without an ending
    version: int  # of its tables; a file of another version is built anew
    tables: tuple[Table, ...]
    where: Filter  # which records concern it
    read: Callable[[Record], Any]
    fold: Callable[[Rows, Sequence[Any]], None]

    def fold_all(self, rows: Rows, records: Iterable[Record]) -> list[Record]:
        """Bring the tables up to date; give the records that cannot be read and were passed."""
        changes, passed = [], []
        for record in records:
            try:
                changes.append(self.read(record))
            except UnreadableRecord:
                passed.append(record)
                told = "record %d (%s, %s) cannot be read and is missing from the list of %s"
                _log.exception(told, record.position, record.stream, record.name, self.name)
        self.fold(rows, [change for change in changes if change is not None])
        return passed


class Askable(Protocol):
    """A listing that can be asked: a live one, or one that is only read."""

    async def ask(self, query: Query[Result], at: Mark | None = None) -> tuple[Result, Mark]:
        """Answer a query, and say at which place this is true: ``at``, if it is stated."""


class ListingFile(ProjectionFile):
    """The tables of a listing in a file. Synchronous; called from threads."""

    def __init__(self, listing: Listing, path: Path | str = IN_MEMORY) -> None:
        """Name the file. Nothing is opened before ``open``."""
        self.listing = listing
        self.passed = 0  # records, or damaged parts of the log, that could not be read
        schema = [statement for table in listing.tables for statement in table.schema]
        super().__init__(path, (_PASSED, *schema), listing.version)

    def begin(self, store: Store) -> Mark:
        """Open the file; give the place up to which it has come in a log.

        It starts anew if it does not fit the log, or lacks records that can be read by now.
        """
        self.open()
        place = self.place(store)
        if place is None or any(map(self._is_readable, self._passed(store))):
            self.rebuild()
            place = START
        with self.reading() as database:
            (self.passed,) = database.execute("SELECT count(*) FROM passed").fetchone()
        return place

    def take_in(
        self, records: Iterable[Record], generation: str, upto: Mark, *, lost: int | None = None
    ) -> None:
        """Take in records that are not yet taken in, and move the place mark.

        Remember those that cannot be read, and a position where the log itself cannot: ``lost``.
        """
        with self.writing() as database:
            place = place_in(database)
            new = [record for record in records if record.position > place.position]
            unreadable = self.listing.fold_all(Rows(database), new)
            passed = [(each.position, f"{each.stream} {each.name}") for each in unreadable]
            if lost is not None:
                passed.append((lost, f"the log is damaged up to {upto.position}"))
            database.executemany("INSERT OR IGNORE INTO passed VALUES (?, ?)", passed)
            move_place(database, generation, max(place, upto))
        self.passed += len(passed)

    def pass_damage(self, store: Store, after: Mark) -> Mark:
        """Take in, one by one, records of a page that cannot be read as a whole.

        The first that cannot be read is passed, with all up to the next that can. Give the place.
        """
        for _ in range(PAGE_RECORDS):
            page = store.read_all(after.position, Bounds(records=1, pass_damage=True))
            sound = [record for record in page.records if _has_metadata(record)]
            upto = page.records[0].mark if page.records else page.head
            if upto.position <= after.position:
                break  # all could be read this time
            is_next = upto.position == after.position + 1
            lost = None if sound and is_next else after.position + 1
            matching = list(filter(self.listing.where.matches, sound))
            self.take_in(matching, store.generation, upto, lost=lost)
            if lost is not None:
                told = "the log is damaged after position %d; the list of %s goes on at %d"
                _log.error(told, after.position, self.listing.name, upto.position)
                return upto
            after = upto
        return after

    def _passed(self, store: Store) -> Iterable[Record]:
        """Give records that were passed, as they are now, those that the store can give."""
        with self.reading() as database:
            statement = "SELECT position FROM passed ORDER BY position LIMIT ?"
            positions = database.execute(statement, (_TRIED,)).fetchall()
        for (position,) in positions:
            found = _record_after(store, position - 1)
            if found is not None and found.position == position:
                yield found

    def _is_readable(self, record: Record) -> bool:
        try:
            self.listing.read(record)
        except UnreadableRecord:
            return False
        return True


def _record_after(store: Store, position: int) -> Record | None:
    """Give the next record, None if it cannot be read."""
    try:
        found = store.read_all(position, Bounds(records=1)).records
    except UnreadableRecord:
        return None
    return found[0] if found and _has_metadata(found[0]) else None


def _has_metadata(record: Record) -> bool:
    """Tell whether filters can look at a record."""
    try:
        return record.metadata is not None
    except cbor.DecodeError:
        return False
