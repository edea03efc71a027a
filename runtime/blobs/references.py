"""References: which blobs the log names.

A projection of the log in a file of its own, brought up to date when somebody asks.

Any event that holds the address of a blob, anywhere in it, names the blob. One that exports it has
also promised that it is there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from perdure.actors.run.events import RUN_EVENTS, ExportAppended
from perdure.eventlog.record import START
from perdure.eventlog.store import Bounds
from perdure.runtime.blobs.blob import Blob, blob_at, mentions
from perdure.runtime.kernel.projection import ProjectionFile, move_place, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from perdure.eventlog.log import EventLog
    from perdure.eventlog.record import Record
    from perdure.eventlog.store import Store

FORMAT: Final = 1
_SCHEMA: Final = (
    """
    CREATE TABLE named (
        scope TEXT NOT NULL, sha256 TEXT NOT NULL, promised INTEGER NOT NULL,
        PRIMARY KEY (scope, sha256)
    ) WITHOUT ROWID
    """,
)
_NAME: Final = """
    INSERT INTO named VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET promised = max(promised, excluded.promised)
"""


class Reference(NamedTuple):
    """A blob that the log names; ``promised`` if an item has it as its content."""

    blob: Blob
    promised: bool


class References:
    """The projection's file. Synchronous; called from a thread."""

    def __init__(self, path: Path | str = ":memory:") -> None:
        """Name the file; it is opened when records are taken in, so that a full disk may end."""
        self._file = ProjectionFile(path, _SCHEMA, FORMAT)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def catch_up(self, store: Store, *, pass_damage: bool = False) -> bool:
        """Take in the next records of the log; tell whether there are more.

        A damaged or foreign file is started anew.
        """
        self._file.open()
        with self._file.writing() as database:
            place = place_of(database, store)
            if place is None:
                database.execute("DELETE FROM named")
                place = START
            page = store.read_all(place.position, Bounds(pass_damage=pass_damage))
            database.executemany(_NAME, _rows(page.records))
            upto = page.records[-1].mark if page.more else page.head
            move_place(database, store.generation, upto)
            return page.more

    def of(self, scope: str) -> set[Blob]:
        """Give the blobs of a scope that are named."""
        statement = "SELECT sha256 FROM named WHERE scope = ?"
        with self._file.reading() as database:
            return {Blob(scope, row[0]) for row in database.execute(statement, (scope,))}

    def after(self, blob: Blob | None, limit: int = 1000) -> Sequence[Reference]:
        """List all references in order, from one on."""
        statement = "SELECT * FROM named WHERE (scope, sha256) > (?, ?) ORDER BY 1, 2 LIMIT ?"
        with self._file.reading() as database:
            rows = database.execute(statement, (*(blob or ("", "")), limit)).fetchall()
        return [Reference(Blob(scope, sha256), bool(promised)) for scope, sha256, promised in rows]


async def named_by(log: EventLog, references: References, scope: str) -> set[Blob]:
    """Give the blobs of a scope that the log names now."""
    await catch_up(log, references)
    return await log.in_thread(references.of, scope)


async def catch_up(log: EventLog, references: References, *, pass_damage: bool = False) -> None:
    """Bring references up to date with their log.

    What a damaged record names is not known: a blob of its may be removed if it is passed over.
    """
    while await log.in_thread(partial(references.catch_up, log.store, pass_damage=pass_damage)):
        pass


def _rows(records: Sequence[Record]) -> Iterator[tuple[str, str, bool]]:
    for record in records:
        for blob in mentions(record.body, record.scope.rpartition("/")[2]):
            yield (*blob, False)
            if record.name == ExportAppended.event_name:
                export: ExportAppended = RUN_EVENTS.decode(record)
                yield (*blob, export.binary_url is not None and blob_at(export.binary_url) == blob)
