"""The writer's ledger: which append may go into the batch being built.

The ledger knows the version of every stream it has lately seen, and numbers new records on top of
it. What it does not know it looks up in the store. It runs ahead of the disk by exactly one batch:

    admit ... admit ... -> the store commits -> keep()        the batch is history
                        -> the store fails   -> roll_back()   the batch never was

An append that conflicts with history is refused. One that conflicts with the batch itself is
*deferred*: its cause may yet vanish, so it is judged again once the batch has settled. Nobody is
ever told of a conflict with something that a power cut could still undo.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar

from perdure.eventlog import checksum
from perdure.eventlog.append import Append, StreamWrite
from perdure.eventlog.errors import (
    DamagedRecord,
    EventLogError,
    InvalidAppend,
    ScopeMoved,
    StreamSealed,
    WrongExpectedVersion,
)
from perdure.eventlog.record import Record

CAPACITY: Final = 65_536
WATCHED: Final = 1_024  # scopes in which the events of some names are told from others
Cached = TypeVar("Cached")


class StreamState(NamedTuple):
    """Where a stream stands: its last version (0: no such stream), its scope, its seal."""

    version: int
    scope: str
    sealed: bool


NO_STREAM: Final = StreamState(0, "", sealed=False)


class Lookup(Protocol):
    """What the ledger asks of a store. Answers speak of committed records only."""

    def stream_state(self, stream: str) -> StreamState:
        """Tell where a stream stands."""

    def scope_position(self, scope: str) -> int:
        """Tell the position of a scope's newest record, 0 if it has none."""

    def slice_of_stream(self, stream: str, after: int, count: int) -> Sequence[Record]:
        """Read up to ``count`` records that follow version ``after``."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The append goes into the batch as these records."""

    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Repeated:
    """The very same events are on disk already: an earlier try had succeeded."""

    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class AppendRefused:
    """The append conflicts with what is on disk."""

    error: EventLogError


@dataclass(frozen=True, slots=True)
class Deferred:
    """The append conflicts with the batch being built; judge it again afterwards."""


Verdict = Admitted | Repeated | AppendRefused | Deferred


class WatchedScope:
    """The newest position of each event name in a scope, since it has been watched."""

    __slots__ = ("newest", "since")

    def __init__(self, since: int) -> None:
        """Begin at the position of its newest record."""
        self.since = since
        self.newest: dict[str, int] = {}

    def note(self, records: Iterable[Record]) -> None:
        """Take in new records."""
        for record in records:
            self.newest[record.name] = record.position


class Ledger:
    """Versions, seals and scope positions, as of the batch being built."""

    def __init__(self, store: Lookup, head: int, capacity: int = CAPACITY) -> None:
        """Start at the store's head position with an empty cache of ``capacity`` streams."""
        self._store = store
        self._capacity = capacity
        self._head = self._head_on_disk = head
        self._streams: OrderedDict[str, StreamState] = OrderedDict()  # least recently written first
        self._scopes: OrderedDict[str, int] = OrderedDict()  # least recently written first
        self._watched: OrderedDict[str, WatchedScope] = OrderedDict()  # oldest first
        self._streams_in_batch: set[str] = set()
        self._scopes_in_batch: set[str] = set()

    def admit(self, append: Append, commit_time: int) -> Verdict:
        """Judge an append against history and the batch so far; number its records if it fits."""
        try:
            error, depends_on_batch = self._conflict(append)
            if error is None:
                return Admitted(self._number(append.writes, commit_time))
            if depends_on_batch:
                return Deferred()
            stored = self._already_stored(append)
        except DamagedRecord as damage:
            return AppendRefused(damage)  # of one stream; the others are as they were
        return Repeated(stored) if stored else AppendRefused(error)

    def keep(self) -> None:
        """Take the batch as history: it is on disk."""
        self._head_on_disk = self._head
        self._streams_in_batch.clear()
        self._scopes_in_batch.clear()
        _forget_oldest(self._streams, self._capacity)
        _forget_oldest(self._scopes, self._capacity)

    def roll_back(self) -> None:
        """Forget the batch: what it touched will be looked up again."""
        self._head = self._head_on_disk
        self._watched.clear()
        _forget(self._streams, self._streams_in_batch)
        _forget(self._scopes, self._scopes_in_batch)
        self._streams_in_batch.clear()
        self._scopes_in_batch.clear()

    def forget_everything(self, head: int) -> None:
        """Trust nothing remembered: the store contradicted it."""
        self._head = self._head_on_disk = head
        self._streams.clear()
        self._scopes.clear()
        self._watched.clear()
        self._streams_in_batch.clear()
        self._scopes_in_batch.clear()

    def _conflict(self, append: Append) -> tuple[EventLogError | None, bool]:
        """Find the first conflict, and whether it is with the batch rather than with the disk."""
        for write in append.writes:
            state = self._stream(write.stream)
            error: EventLogError | None = None
            if state.sealed:
                error = StreamSealed(write.stream, write.expected, state.version)
            elif state.version != write.expected:
                error = WrongExpectedVersion(write.stream, write.expected, state.version)
            elif state.version and state.scope != write.scope:
                error = InvalidAppend(f"stream {write.stream!r} belongs to scope {state.scope!r}")
            if error is not None:
                return error, write.stream in self._streams_in_batch
        for mark in append.unmoved:
            actual = self._scope(mark.scope)
            if actual > mark.position and mark.names is not None:
                actual = self._newest_of(mark.scope, mark.names, actual)
            if actual > mark.position:
                error = ScopeMoved(mark.scope, mark.position, actual)
                return error, mark.scope in self._scopes_in_batch
        return None, False

    def _number(self, writes: Sequence[StreamWrite], commit_time: int) -> list[Record]:
        records: list[Record] = []
        position = self._head
        for write in writes:
            version = write.expected
            for event in write.events:
                position += 1
                version += 1
                values = (
                    position,
                    write.stream,
                    version,
                    event.name,
                    event.body,
                    write.scope,
                    event.event_id,
                    event.event_time,
                    commit_time,
                    event.schema,
                    int(write.seal and version == write.expected + len(write.events)),
                    bytes(event.meta),
                )
                records.append(Record._make(checksum.append_to(values)))
            _renew(self._streams, write.stream, StreamState(version, write.scope, write.seal))
            _renew(self._scopes, write.scope, position)
            if write.scope in self._watched:
                self._watched[write.scope].note(records[-len(write.events) :])
            self._streams_in_batch.add(write.stream)
            self._scopes_in_batch.add(write.scope)
        self._head = position
        return records

    def _already_stored(self, append: Append) -> list[Record] | None:
        """Find the records of an earlier try by their event ids."""
        found: list[Record] = []
        for write in append.writes:
            stored = self._store.slice_of_stream(write.stream, write.expected, len(write.events))
            if [r.event_id for r in stored] != [e.event_id for e in write.events]:
                return None
            found.extend(stored)
        return found

    def _stream(self, stream: str) -> StreamState:
        state = self._streams.get(stream)
        if state is None:
            state = self._store.stream_state(stream)
            _renew(self._streams, stream, state)
        return state

    def _newest_of(self, scope: str, names: frozenset[str], newest: int) -> int:
        """Tell the position of a scope's newest event of some names, or one that is too high.

        From its first question on a scope is watched; what was there before counts as any event.
        """
        watched = self._watched.get(scope)
        if watched is None:
            watched = WatchedScope(newest)
            _renew(self._watched, scope, watched)
            _forget_oldest(self._watched, WATCHED)
        return max((watched.newest.get(name, watched.since) for name in names), default=0)

    def _scope(self, scope: str) -> int:
        position = self._scopes.get(scope)
        if position is None:
            position = self._store.scope_position(scope)
            _renew(self._scopes, scope, position)
        return position


def _renew(cache: OrderedDict[str, Cached], key: str, value: Cached) -> None:
    cache[key] = value
    cache.move_to_end(key)


def _forget(cache: OrderedDict[str, Cached], keys: Iterable[str]) -> None:
    for key in keys:
        cache.pop(key, None)


def _forget_oldest(cache: OrderedDict[str, Cached], capacity: int) -> None:
    while len(cache) > capacity:
        cache.popitem(last=False)
