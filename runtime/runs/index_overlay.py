"""A directory read beside the process that keeps it, or after it, without touching its file.

What the file lacks is folded into tables in memory that lie over those of the file.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from perdure.eventlog.store import Bounds
from perdure.runtime.kernel.projection import Projection, has_tables
from perdure.runtime.runs.index import FORMAT, OPEN, Directory, RunTables, fold_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from perdure.eventlog.record import Record
    from perdure.eventlog.store import Store, StoredPage

# Tables of the same shape in memory, and views that show both and are written like tables. The last
# interval of a run in the file ends where the first new one begins.
_OVERLAY: Final = (
    "CREATE TEMP TABLE new_runs AS SELECT * FROM main.runs LIMIT 0",
    "CREATE TEMP TABLE new_intervals AS SELECT * FROM main.intervals LIMIT 0",
    "CREATE UNIQUE INDEX temp.new_runs_by_id ON new_runs (run_id)",
    "CREATE UNIQUE INDEX temp.new_runs_by_position ON new_runs (position)",
    "CREATE UNIQUE INDEX temp.new_intervals_by_run ON new_intervals (run_id, begins)",
    "CREATE TEMP VIEW runs AS SELECT * FROM main.runs UNION ALL SELECT * FROM new_runs",
    f"""
    CREATE TEMP VIEW intervals AS
    SELECT run_id, status, begins, CASE WHEN ends = {OPEN} THEN ifnull(
        (SELECT min(n.begins) FROM new_intervals n WHERE n.run_id = i.run_id), ends)
        ELSE ends END AS ends
    FROM main.intervals i UNION ALL SELECT * FROM new_intervals
    """,  # noqa: S608 - a number of ours
    """
    CREATE TEMP TRIGGER new_run INSTEAD OF INSERT ON runs BEGIN
        INSERT INTO new_runs VALUES (
            new.run_id, new.position, new.created_at, new.tenant, new.plugin_id, new.entry_id,
            new.task_id, new.session_id, new.root_run_id
        );
    END
    """,
    """
    CREATE TEMP TRIGGER new_interval INSTEAD OF INSERT ON intervals BEGIN
        INSERT INTO new_intervals VALUES (new.run_id, new.status, new.begins, new.ends);
    END
    """,
    """
    CREATE TEMP TRIGGER interval_ends INSTEAD OF UPDATE ON intervals BEGIN
        UPDATE new_intervals SET ends = new.ends WHERE run_id = old.run_id AND begins = old.begins;
    END
    """,
)


class Overlay(RunTables):
    """A directory that somebody else keeps, at one moment, with newer records over it."""

    def __init__(self, path: Path) -> None:
        """Open the file for reading only, or raise sqlite3.Error."""
        super().__init__(Projection(_opened(path)))

    def lay_over(self, records: Iterable[Record]) -> None:
        """Take in records that the file does not have."""
        with self._projection.reading() as database:
            fold_in(database, records)


def _opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        check_same_thread=False,
        isolation_level=None,
    )
    try:
        for statement in _OVERLAY if has_tables(database, FORMAT) else ():
            database.execute(statement)
        database.execute("BEGIN")  # from here on the file stands still
    except BaseException:
        database.close()
        raise
    return database


def read_directory(path: Path, store: Store) -> RunTables:
    """Open a directory beside whoever keeps it, with all that the log holds; write nothing.

    A file that is missing, damaged or of another log is passed over, and the log folded from its
    beginning.
    """
    overlay: Overlay | None = None
    with suppress(sqlite3.Error):
        overlay = Overlay(path)
        mark = overlay.place(store)
        if mark is not None:
            for page in _pages(store, mark.position):
                overlay.lay_over(page.records)
            return overlay
    if overlay is not None:
        overlay.close()
    directory = Directory(":memory:")
    for page in _pages(store, 0):
        directory.take_in(page.records, store.generation, page.head)
    return directory


def _pages(store: Store, position: int) -> Iterator[StoredPage]:
    while True:
        page = store.read_all(position, Bounds())
        yield page
        if not page.more:
            return
        position = page.records[-1].position
