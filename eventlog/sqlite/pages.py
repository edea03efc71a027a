"""Pages of records, each record compared with its checksum.

A page ends before a damaged record; a read that begins with one raises DamagedRecord. So nobody
sees a record that is not what was written, and a reader knows how far it came. Numbers without
holes (positions, the versions of a stream) tell when a record is missing.
"""

from __future__ import annotations

import heapq
import logging
from functools import partial
from itertools import islice
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perdure.eventlog.checksum import AT_ONCE, are_sound, is_sound
from perdure.eventlog.errors import DamagedRecord, StoreDamaged
from perdure.eventlog.record import START, Mark, Record
from perdure.eventlog.sqlite import schema
from perdure.eventlog.sqlite.connection import DATABASE_ERRORS, classified
from perdure.eventlog.sqlite.format import EVERY_POSITION
from perdure.eventlog.store import StoredPage

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from perdure.eventlog.sqlite.format import About
    from perdure.eventlog.store import Bounds

    Row = tuple[Any, ...]

_TYPES: Final = (int, str, int, str, bytes, str, bytes, int, int, int, int, bytes, NoneType)
_BODY: Final = Record._fields.index("body")
_META: Final = Record._fields.index("meta")
_MISMATCH: Final = "its checksum does not match"
_MISSING: Final = "it is missing"
_make: Final = partial(tuple.__new__, Record)  # Record._make without its check
_log = logging.getLogger("perdure.log")


class _Asked(NamedTuple):
    """What a page is read by: statements, and the numbers that its records count through."""

    sources: tuple[tuple[str, Row], ...]
    column: int | None = None  # whose numbers have no holes
    after: int = 0
    upto: int | None = None  # the last number, where it is known
    stream: str = ""
    scope: str = ""

    def damage(self, records: int, reason: str, row: Row = (0, ""), last: int = 0) -> DamagedRecord:
        """Name the record that follows so many in the page; ``row`` is what was found there."""
        number = self.after + records + 1
        if self.stream:
            what = f"version {number} of stream {self.stream!r}"
            return DamagedRecord(what, reason, position=row[0], stream=self.stream)
        if self.scope:
            what = f"a record in scope {self.scope!r}"
            return DamagedRecord(what, reason, position=row[0], stream=str(row[1]))
        return DamagedRecord(
            f"record {number}", reason, position=number, last=last, stream=str(row[1])
        )


class Pages:
    """Reads the pages of one file, in transactions of its store."""

    def __init__(self, path: Path, about: About) -> None:
        """Read rows as the format of the file has them."""
        self._path = path
        self._reads = schema.READS[about.version]
        self._unchecked = about.unchecked

    def all(self, c: sqlite3.Cursor, after: int, bounds: Bounds) -> StoredPage:
        """Read records by position."""
        after, head = max(after, 0), mark(c.execute(schema.HEAD).fetchone()) or START
        upto = head.position if bounds.upto is None else min(bounds.upto, head.position)
        while True:
            key = (after + 1, upto)
            asked = _Asked(((self._reads.everything, key),), column=0, after=after, upto=upto)
            try:
                return self._page(c, asked, bounds, head)
            except DamagedRecord as damage:
                if not bounds.pass_damage:
                    raise
                _log.error("%s; it is passed over", damage)
                after = damage.last

    def scope(self, c: sqlite3.Cursor, scope: str, after: int, bounds: Bounds) -> StoredPage:
        """Read a scope's records by position."""
        upto = EVERY_POSITION if bounds.upto is None else bounds.upto
        begin = self.version_at(c, scope, after)
        end = EVERY_POSITION if bounds.upto is None else self.version_at(c, scope, upto)
        sources = (
            (self._reads.scope, (scope, after, upto)),
            (self._reads.own_scope, (scope, begin, end)),
        )
        return self._page(c, _Asked(sources, scope=scope), bounds)

    def stream(self, c: sqlite3.Cursor, stream: str, after: int, bounds: Bounds) -> StoredPage:
        """Read a stream's records by version."""
        upto = None if bounds.upto is None else self.version_at(c, stream, bounds.upto)
        key = (stream, after, EVERY_POSITION if upto is None else upto)
        sources = ((self._reads.stream, key),)
        asked = _Asked(sources, column=2, after=max(after, 0), upto=upto, stream=stream)
        return self._page(c, asked, bounds)

    def newest_of_stream(self, c: sqlite3.Cursor, stream: str) -> Record | None:
        """Read the last record of a stream."""
        found = self._looked_up(c, stream, self._reads.newest_of_stream, (stream,))
        return found[0] if found else None

    def slice_of_stream(
        self, c: sqlite3.Cursor, stream: str, after: int, count: int
    ) -> list[Record]:
        """Read some records of a stream that follow a version."""
        key = (stream, after, EVERY_POSITION, count)
        return self._looked_up(c, stream, self._reads.stream, key)

    def by_stream(self, c: sqlite3.Cursor, after: tuple[str, int], limit: int) -> list[Record]:
        """Read records in order of stream and version, those that are not damaged."""
        rows = c.execute(self._reads.by_stream, (*after, limit))
        return [_make(row) for row in rows if self._is_sound(row)]

    def version_at(self, c: sqlite3.Cursor, stream: str, position: int) -> int:
        """Give the version of a stream at a position, by bisection: both only ever grow."""
        (newest,) = c.execute(schema.STREAM_VERSION, (stream,)).fetchone()
        low, high = 0, newest or 0
        while low < high:  # the version lies in low .. high
            middle = (low + high + 1) // 2
            row = c.execute(schema.POSITION_OF, (stream, middle)).fetchone()
            if row is None:
                raise _Asked((), stream=stream).damage(middle - 1, _MISSING)
            if row[0] <= position:
                low = middle
            else:
                high = middle - 1
        return low

    def _page(
        self, c: sqlite3.Cursor, asked: _Asked, bounds: Bounds, head: Mark | None = None
    ) -> StoredPage:
        """Read a page and the head of the log in the cursor's transaction; merge by position."""
        if head is None:
            head = mark(c.execute(schema.HEAD).fetchone()) or START
        records: list[Record] = []
        damage, more = None, False
        try:
            try:
                row, more = self._gather(_rows(c, asked, bounds), records, bounds, AT_ONCE)
            except DATABASE_ERRORS:  # again, to know what lies before
                records.clear()
                row, more = self._gather(_rows(c, asked, bounds), records, bounds, 1)
            if row is not None:
                last = self._end_of_damage(c, asked, len(records), row[0])
                damage = asked.damage(len(records), _MISMATCH, row, last)
        except DATABASE_ERRORS as error:
            damage = asked.damage(len(records), self._reason(error))
        if asked.column is not None:
            damage = _missing(asked, asked.column, records, is_whole=not (more or damage)) or damage
        if damage is not None and not records:
            raise damage
        return StoredPage(records, more=more or damage is not None, head=head)

    def _gather(
        self, rows: Iterator[Row], records: list[Record], bounds: Bounds, at_once: int
    ) -> tuple[Row | None, bool]:
        """Take rows up to a bound or a damaged one; give that, and whether there are more."""
        size = 0
        while some := list(islice(rows, min(at_once, bounds.records - len(records)))):
            are_all_sound = some[0][0] > self._unchecked and are_sound(some)
            if are_all_sound:
                more = sum([len(row[_BODY]) + len(row[_META]) for row in some])
                if size + more < bounds.bytes:
                    records.extend(map(_make, some))
                    size += more
                    continue
            for row in some:
                if size >= bounds.bytes:
                    return None, True
                if not are_all_sound and not self._is_sound(row):
                    return row, True
                records.append(_make(row))
                size += records[-1].size
        return None, next(rows, None) is not None

    def _end_of_damage(self, c: sqlite3.Cursor, asked: _Asked, records: int, found: int) -> int:
        """Give the last position that a damaged row stands for: its own, if none lies before it.

        A changed position can be any number; whoever passes damage over does not count up to it.
        """
        number = asked.after + records + 1
        if asked.column != 0 or found <= number:
            return 0
        try:
            both = c.execute(self._reads.everything, (number, asked.upto, 2)).fetchall()
        except DATABASE_ERRORS:
            return 0
        return found if all(row[0] >= found for row in both) else 0

    def _looked_up(self, c: sqlite3.Cursor, stream: str, statement: str, key: Row) -> list[Record]:
        """Read a few records of a stream, all of them or none."""
        rows: list[Row] = []
        try:
            rows = c.execute(statement, key).fetchall()
            reason = None if all(map(self._is_sound, rows)) else _MISMATCH
        except DATABASE_ERRORS as error:
            reason = self._reason(error)
        if reason is not None:
            raise DamagedRecord(f"a record of stream {stream!r}", reason, stream=stream)
        return list(map(_make, rows))

    def _reason(self, error: Exception) -> str:
        """Tell what is damaged; raise an error that means something else."""
        found = classified(error, self._path)
        if not isinstance(found, StoreDamaged):
            raise found from error
        return found.reason

    def _is_sound(self, row: Row) -> bool:
        """Compare a row with its checksum; one of before checksums has at least the right types."""
        if row[-1] is None and row[0] <= self._unchecked:
            return (*map(type, row),) == _TYPES
        return is_sound(row)


def mark(row: tuple[int, bytes] | None) -> Mark | None:
    """Give the place that a row of position and event id names."""
    return None if row is None else Mark(*row)


def _rows(c: sqlite3.Cursor, asked: _Asked, bounds: Bounds) -> Iterator[Row]:
    limit = bounds.records + 1
    found = [c.connection.execute(statement, (*key, limit)) for statement, key in asked.sources]
    for rows in found:
        rows.row_factory = None
    return found[0] if len(found) == 1 else heapq.merge(*found)


def _missing(
    asked: _Asked, column: int, records: list[Record], *, is_whole: bool
) -> DamagedRecord | None:
    """Look for a hole in the numbers of a page; cut the page there."""
    end = asked.after + len(records)
    if records and records[-1][column] != end:
        numbers = [(record.position, 0, record.version)[column] for record in records]
        cut = next(i for i, number in enumerate(numbers, 1) if number != asked.after + i) - 1
        del records[cut:]
        return asked.damage(cut, _MISSING, last=numbers[cut] - 1)
    if is_whole and asked.upto is not None and end < asked.upto:
        return asked.damage(len(records), _MISSING, last=asked.upto)
    return None
