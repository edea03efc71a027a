"""A listing: which actors there are, folded from the log into tables of a file of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from perdure.eventlog.errors import StoreDamaged, UnreadableRecord
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
    Question = Callable[[sqlite3.Connection, int | None], "Result"]

Result = TypeVar("Result")
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

    async def ask(self, question: Question[Result], at: Mark | None = None) -> tuple[Result, Mark]:
        """Answer a question, and say at which place this is true: ``at``, if it is stated."""


class ListingFile(ProjectionFile):
    """The tables of a listing in a file. Synchronous; called from threads."""

    def __init__(self, listing: Listing, path: Path | str = IN_MEMORY) -> None:
        """Name the file. Nothing is opened before ``open``."""
        self.listing = listing
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
            return START
        return place

    def take_in(self, records: Iterable[Record], generation: str, upto: Mark) -> None:
        """Take in records that are not yet taken in, and move the place mark."""
        with self.writing() as database:
            place = place_in(database)
            new = [record for record in records if record.position > place.position]
            for record in self.listing.fold_all(Rows(database), new):
                self._remember(database, record.position, f"{record.stream} {record.name}")
            move_place(database, generation, max(place, upto))

    def pass_damage(self, store: Store, after: Mark) -> Mark:
        """Take in what can be read up to where the log is damaged, and what comes behind it.

        Give the place of the last record taken in. What was passed is remembered and tried again.
        """
        records, position = list[Record](), after.position
        while len(records) < PAGE_RECORDS and (found := _record_after(store, position)):
            records.append(found)
            position = found.position
        behind = None
        if len(records) < PAGE_RECORDS:
            behind = _first_behind(store, position)
            records.append(behind)
        matching = [record for record in records if self.listing.where.matches(record)]
        self.take_in(matching, store.generation, records[-1].mark)
        if behind is not None:
            told = "the log is damaged after position %d; the list of %s goes on at %d"
            _log.error(told, position, self.listing.name, behind.position)
            with self.writing() as database:
                self._remember(database, position + 1, f"damaged, up to {behind.position}")
        return records[-1].mark

    def passed(self) -> int:
        """Count the records that could not be read."""
        with self.reading() as database:
            (count,) = database.execute("SELECT count(*) FROM passed").fetchone()
        return int(count)

    def _remember(self, database: sqlite3.Connection, position: int, about: str) -> None:
        database.execute("INSERT OR IGNORE INTO passed VALUES (?, ?)", (position, about))

    def _passed(self, store: Store) -> Iterable[Record]:
        """Give records that were passed, as they are now, those that the store can give."""
        with self.reading() as database:
            statement = "SELECT position FROM passed ORDER BY position LIMIT ?"
            positions = database.execute(statement, (_TRIED,)).fetchall()
        for (position,) in positions:
            try:
                yield from store.read_all(position - 1, Bounds(records=1)).records
            except StoreDamaged:
                continue

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
    except (StoreDamaged, UnreadableRecord):
        return None
    return found[0] if found else None


def _first_behind(store: Store, position: int) -> Record:
    """Give the first record behind a damaged part of the log; raise if there is none."""
    step, head = 1, store.head().position
    while (found := _record_after(store, position + step)) is None:
        if position + step > head:
            raise StoreDamaged("the log", f"nothing can be read after position {position}")
        step *= 2
    nearest, low = found, step // 2
    while step - low > 1:
        middle = (low + step) // 2
        found = _record_after(store, position + middle)
        if found is None:
            low = middle
        else:
            nearest, step = found, middle
    return nearest
