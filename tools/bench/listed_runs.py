"""Indexes of very many runs, made row by row: nothing of that size need be executed for it.

Runs of all sizes look alike: so many at work at a time, so many in all that failed, spread evenly.
Each file is made once and kept for all measurements of a run.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from perdure.eventlog import MemoryStore
from perdure.eventlog.record import START
from perdure.runtime.kernel.intervals import cell
from perdure.runtime.kernel.listing import ListingFile
from perdure.runtime.kernel.projection import move_place
from perdure.runtime.kernel.table import Rows
from perdure.runtime.runs.index import BLOCK, RUN_LISTING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUNS: Final = 1_000_000
FEWER_RUNS: Final = 10_000
TENANT: Final = "local"
APART: Final = 8  # records between the creations of two runs
_LIFE: Final = 300  # records from the creation of a run to its end
_WAIT: Final = 40  # and to its start
_FAILED: Final = 200
_OPEN: Final = 500
_PORTION: Final = 5_000


@contextmanager
def index_of(directory: Path, runs: int) -> Iterator[ListingFile]:
    """Open the index of so many runs; make it if there is none."""
    path = directory / f"listed-{runs}.db"
    is_new = not path.exists()
    with closing(ListingFile(RUN_LISTING, path)) as tables:
        tables.open()
        if is_new:
            _fill(tables, runs)
        yield tables


def _fill(tables: ListingFile, runs: int) -> None:
    by_name = {table.name: table for table in RUN_LISTING.tables}
    for first in range(0, runs, _PORTION):
        put: dict[str, list[tuple[Any, ...]]] = {"runs": [], "past": []}
        for number in range(first, min(first + _PORTION, runs)):
            _add(put, number, runs)
        with tables.writing() as database:
            for name, rows in put.items():
                Rows(database).put(by_name[name], rows)
    with tables.writing() as database:
        blocks = range((runs * APART >> BLOCK) + 1)
        times = [(block, block << BLOCK, (block + 1) << BLOCK) for block in blocks]
        Rows(database).put(by_name["times"], times)
        move_place(database, MemoryStore().generation, START)


def _add(put: dict[str, list[tuple[Any, ...]]], number: int, runs: int) -> None:
    position = (number + 1) * APART
    started, ended = position + _WAIT, position + _LIFE
    is_open = number >= runs - _OPEN
    place, rest = divmod(number, (runs - _OPEN) // _FAILED)
    failed = rest == 0 and place < _FAILED
    outcome = "" if is_open else "failed" if failed else "succeeded"
    run_id = f"{number:036}"
    owner = (TENANT, f"plugin-{number % 3}", f"entry-{number % 7}", None, None, run_id)
    standing = ("running", started, "") if is_open else (outcome, ended, outcome)
    put["runs"].append((position, run_id, position, *owner, *standing))
    waited = cell(position, started)
    put["past"].append((TENANT, "queued", waited, position, position, started))
    if not is_open:
        put["past"].append((TENANT, "running", cell(started, ended), position, started, ended))
