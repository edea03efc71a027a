"""Which counters there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.eventlog.filter import Filter
from perdure.eventlog.record import Record
from perdure.runtime.kernel.listing import Listing
from perdure.runtime.kernel.table import Table
from tests.counters.rules import COUNTER_EVENTS, CounterOpened

if TYPE_CHECKING:
    from perdure.runtime.kernel.listing import Query


_COUNTERS: Final = Table(
    name="counters", columns=("counter_id TEXT", "tenant TEXT NOT NULL"), key=("counter_id",)
)


def _read(record: Record) -> tuple[str, str] | None:
    if record.name != CounterOpened.event_name:
        return None
    opened: CounterOpened = COUNTER_EVENTS.decode(record)
    return opened.counter_id, opened.tenant


COUNTER_LISTING: Final = Listing(
    name="counters",
    version=1,
    tables=(_COUNTERS,),
    where=Filter(names=frozenset({CounterOpened.event_name})),
    read=_read,
    fold=lambda rows, changes: rows.put(_COUNTERS, changes),
)


def counters_of(tenant: str) -> Query[list[str]]:
    """Ask for the ids of a tenant's counters."""
    statement = "SELECT counter_id FROM counters WHERE tenant = ? ORDER BY counter_id"
    return lambda database, _: [row[0] for row in database.execute(statement, (tenant,))]
