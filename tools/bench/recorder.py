"""The baseline of most measurements: the event recorder of the ``eventsourcing`` library, bare."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from eventsourcing.persistence import StoredEvent
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from perdure.eventlog import NewEvent

_FULL: Final = 2  # what PRAGMA synchronous answers when a commit waits for the disk


@contextmanager
def open_recorder(path: Path) -> Iterator[SQLiteApplicationRecorder]:
    """Open a recorder with text ids whose commits are as durable as those of the log."""
    datastore = SQLiteDatastore(str(path), originator_id_type="text")
    try:
        recorder = SQLiteApplicationRecorder(datastore)
        recorder.create_table()
        _check_durable(datastore)
        yield recorder
    finally:
        datastore.close()


def stored_events(
    streams: Sequence[str], version: int, events: Sequence[NewEvent]
) -> list[StoredEvent]:
    """Give events, one for each stream, in the library's own form."""
    return [
        StoredEvent(
            originator_id=stream, originator_version=version, topic=event.name, state=event.body
        )
        for stream, event in zip(streams, events, strict=True)
    ]


def _check_durable(datastore: SQLiteDatastore) -> None:
    """Refuse to compare with a database that syncs less than ours."""
    with datastore.transaction(commit=False) as cursor:
        for pragma, wanted in (("synchronous", _FULL), ("journal_mode", "wal")):
            cursor.execute(f"PRAGMA {pragma}")
            (found,) = cursor.fetchone()
            if found != wanted:
                raise RuntimeError(f"the recorder runs with {pragma} = {found}, not {wanted}")
