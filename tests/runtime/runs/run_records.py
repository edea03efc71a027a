"""Records of runs as a log holds them, made without executing anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.actors.run.events import RUN_EVENTS, Activated, RunCreated
from perdure.actors.run.status import ENDED, Status
from perdure.eventlog import MemoryStore
from perdure.eventlog.record import Metadata, Record


class Happening(NamedTuple):
    """A run comes to a status; the first time it is created, with these columns."""

    run_id: str
    status: str
    columns: dict[str, Any]


class RunRecords:
    """Numbers happenings and makes records of them."""

    def __init__(self) -> None:
        """Begin with an empty log."""
        self._versions: Counter[str] = Counter()
        self._position = 0

    def record(self, happening: Happening) -> Record:
        """Make the next record."""
        run_id, status, columns = happening
        self._versions[run_id] += 1
        self._position += 1
        event: RunCreated | Activated
        if status == Status.QUEUED:
            event = RunCreated(
                run_id=run_id,
                args={},
                principal="p",
                attempt=1,
                **{"root_run_id": run_id, "at": self._position, **columns},
            )
        else:  # any event will do: the index reads the status beside it
            event = Activated(host="h", epoch=1, plugin_version="1", at=self._position)
        fields = {"tenant": columns.get("tenant"), "status": status, "changed": True}
        made = RUN_EVENTS.encode(
            event,
            event_id=self._position.to_bytes(16, "big"),
            event_time=self._position,
            metadata=Metadata(fields=fields),
        )
        return Record(
            position=self._position,
            stream=f"run/{run_id}",
            version=self._versions[run_id],
            name=made.name,
            body=made.body,
            scope=f"run/{run_id}",
            event_id=made.event_id,
            event_time=made.event_time,
            commit_time=self._position,
            schema=made.schema,
            seal=int(status in ENDED),
            meta=made.meta,
        )


def recorded(happenings: Sequence[Happening]) -> list[Record]:
    """Make the records of a whole log."""
    records = RunRecords()
    return [records.record(each) for each in happenings]


def stored(records: Sequence[Record]) -> MemoryStore:
    """Give a log with records."""
    store = MemoryStore()
    store.commit(records)
    return store
