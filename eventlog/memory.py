"""The log in memory: for tests and simulations. It promises everything but durability."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from eventsourcing.persistence import IntegrityError, Notification, StoredEvent
from eventsourcing.popo import POPOApplicationRecorder

from perdure.eventlog.errors import StoreConflict
from perdure.eventlog.ledger import NO_STREAM, StreamState
from perdure.eventlog.record import START, Mark, Record, foreign_record
from perdure.eventlog.store import Bounds, StoredPage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

_POSITION: Final = attrgetter("position")
_COMMIT_TIME: Final = attrgetter("commit_time")


class MemoryStore(POPOApplicationRecorder):
    """Records in lists. See ``perdure.eventlog.store.Store`` for the methods' promises."""

    needs_upkeep: Final = False
    unchecked: Final = 0  # memory is taken as it is
    wal_bytes: Final = 0

    def __init__(self, generation: str = "0123456789abcdef", *, writable: bool = True) -> None:
        """Start empty."""
        super().__init__()
        self.generation = generation
        self.writable = writable
        self._records: list[Record] = []
        self._streams: dict[str, list[Record]] = {}
        self._scopes: dict[str, list[Record]] = {}

    def commit(self, records: Sequence[Record]) -> None:
        """Write records, all or none."""
        with self._database_lock:
            self._refuse_conflicts(records)
            for record in records:
                self._records.append(record)
                self._streams.setdefault(record.stream, []).append(record)
                self._scopes.setdefault(record.scope, []).append(record)

    def upkeep(self) -> None:
        """Do nothing: there is nothing to keep up."""

    def _refuse_conflicts(self, records: Sequence[Record]) -> None:
        position = self.head().position
        versions: dict[str, set[int]] = {}
        sealed: set[str] = set()
        for record in records:
            stored = self._streams.get(record.stream, [])
            taken = versions.setdefault(record.stream, {r.version for r in stored})
            if record.stream in sealed or (stored and stored[-1].seal):
                raise StoreConflict(f"stream {record.stream!r} is sealed")
            if record.version in taken or record.position <= position:
                raise StoreConflict(f"{record.stream!r} has version {record.version}")
            taken.add(record.version)
            position = record.position
            if record.seal:
                sealed.add(record.stream)

    # Looking up

    def stream_state(self, stream: str) -> StreamState:
        """Tell where a stream stands."""
        stored = self._streams.get(stream)
        if not stored:
            return NO_STREAM
        return StreamState(stored[-1].version, stored[-1].scope, bool(stored[-1].seal))

    def scope_position(self, scope: str) -> int:
        """Tell the position of a scope's newest record."""
        stored = self._scopes.get(scope)
        return stored[-1].position if stored else 0

    def slice_of_stream(self, stream: str, after: int, count: int) -> list[Record]:
        """Read records that follow a version."""
        return self._streams.get(stream, [])[after : after + count]

    def head(self) -> Mark:
        """Give the newest record's place."""
        return self._records[-1].mark if self._records else START

    def last_position(self) -> int:
        """Give the last position used."""
        return self.head().position

    def commit_time(self) -> int:
        """Give the commit time of the newest record."""
        return self._records[-1].commit_time if self._records else 0

    def mark_at(self, position: int) -> Mark | None:
        """Give the place of the record at a position."""
        index = bisect_right(self._records, position, key=_POSITION) - 1
        if index < 0 or self._records[index].position != position:
            return None
        return self._records[index].mark

    def mark_before(self, instant: int) -> Mark:
        """Give the place of the last record committed at or before an instant."""
        index = bisect_right(self._records, instant, key=_COMMIT_TIME) - 1
        return START if index < 0 else self._records[index].mark

    def version_at(self, stream: str, position: int) -> int:
        """Give the version of a stream at a position."""
        return bisect_right(self._streams.get(stream, []), position, key=_POSITION)

    # Reading

    def read_all(self, after: int, bounds: Bounds) -> StoredPage:
        """Read records by position."""
        with self._database_lock:
            first = bisect_right(self._records, after, key=_POSITION)
            return self._page(self._records, first, bounds)

    def read_scope(self, scope: str, after: int, bounds: Bounds) -> StoredPage:
        """Read a scope's records by position."""
        with self._database_lock:
            stored = self._scopes.get(scope, [])
            return self._page(stored, bisect_right(stored, after, key=_POSITION), bounds)

    def read_stream(self, stream: str, after_version: int, bounds: Bounds) -> StoredPage:
        """Read a stream's records by version."""
        with self._database_lock:
            return self._page(self._streams.get(stream, []), max(0, after_version), bounds)

    def read_by_stream(self, after: tuple[str, int], limit: int) -> list[Record]:
        """Read all records in order of stream and version."""
        rest = (r for r in self._records if (r.stream, r.version) > after)
        return sorted(rest, key=lambda r: (r.stream, r.version))[:limit]

    def integrity_problems(self) -> list[str]:
        """Check that each event id occurs once."""
        times = Counter(record.event_id for record in self._records)
        return [f"event id {i.hex()} occurs {n} times" for i, n in times.items() if n > 1]

    def _page(self, stored: Sequence[Record], first: int, bounds: Bounds) -> StoredPage:
        """Cut a page. The caller holds the lock since it found ``stored``: the head is of then."""
        records: list[Record] = []
        size = 0
        for record in stored[first : first + bounds.records + 1]:
            if bounds.upto is not None and record.position > bounds.upto:
                break
            if len(records) == bounds.records or size >= bounds.bytes:
                return StoredPage(records, more=True, head=self.head())
            records.append(record)
            size += record.size
        return StoredPage(records, more=False, head=self.head())

    def check_room(self) -> None:
        """There is always room."""

    def close(self) -> None:
        """Keep everything: a memory store can be opened again as long as it exists."""

    # The library's recorder interface

    def _insert_events(
        self, stored_events: Sequence[StoredEvent], **_: Any
    ) -> Sequence[int] | None:
        with self._database_lock:
            first = self.head().position + 1
            records = [
                foreign_record(
                    first + i, str(e.originator_id), e.originator_version, e.topic, e.state
                )
                for i, e in enumerate(stored_events)
            ]
            try:
                self.commit(records)
            except StoreConflict as exc:
                raise IntegrityError(str(exc)) from exc
            return [record.position for record in records]

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Read a stream, for the library's own tests and tools."""
        chosen: Iterable[Record] = (
            record
            for record in self._streams.get(str(originator_id), [])
            if (gt is None or record.version > gt) and (lte is None or record.version <= lte)
        )
        events = [StoredEvent(r.stream, r.version, r.name, r.body) for r in chosen]
        return (events[::-1] if desc else events)[:limit]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Read by position, for the library's own tests and tools."""
        first = (start or 1) if inclusive_of_start or start is None else start + 1
        chosen = (
            record
            for record in self._records
            if record.position >= first
            and (stop is None or record.position <= stop)
            and (not topics or record.name in topics)
        )
        return [Notification(r.stream, r.version, r.name, r.body, id=r.position) for r in chosen][
            :limit
        ]

    def max_notification_id(self) -> int | None:
        """Give the newest position, for the library's own tests and tools."""
        return self.head().position or None
