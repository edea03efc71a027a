"""Which counters there are."""

from __future__ import annotations

import sqlite3
from typing import Final

from perdure.eventlog.filter import Filter
from perdure.eventlog.record import Record
from perdure.runtime.kernel.listing import Listing
from perdure.runtime.kernel.projection import Projection
from tests.counters.rules import COUNTER_EVENTS, CounterOpened


def _fold(database: sqlite3.Connection, record: Record) -> None:
    if record.name == CounterOpened.event_name:
        opened: CounterOpened = COUNTER_EVENTS.decode(record)
        row = (opened.counter_id, opened.tenant)
        database.execute("INSERT OR IGNORE INTO counters VALUES (?, ?)", row)


COUNTER_LISTING: Final = Listing(
    name="counters",
    version=1,
    schema=("CREATE TABLE counters (counter_id TEXT PRIMARY KEY, tenant TEXT NOT NULL)",),
    overlay=(
        "CREATE TEMP TABLE new_counters AS SELECT * FROM main.counters LIMIT 0",
        "CREATE TEMP VIEW counters AS SELECT * FROM main.counters UNION SELECT * FROM new_counters",
        """
        CREATE TEMP TRIGGER new_counter INSTEAD OF INSERT ON counters BEGIN
            INSERT INTO new_counters VALUES (new.counter_id, new.tenant);
        END
        """,
    ),
    where=Filter(names=frozenset({CounterOpened.event_name})),
    fold=_fold,
)


class CounterTables:
    """The questions about counters."""

    def __init__(self, projection: Projection) -> None:
        """Ask a database with the tables of the listing."""
        self._projection = projection

    def counters(self, tenant: str) -> list[str]:
        """Give the ids of a tenant's counters."""
        statement = "SELECT counter_id FROM counters WHERE tenant = ? ORDER BY counter_id"
        with self._projection.reading() as database:
            return [row[0] for row in database.execute(statement, (tenant,)).fetchall()]
