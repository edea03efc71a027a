"""Appends: what a caller asks the log to write, checked before it waits for the disk."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from eventlog import cbor
from eventlog.errors import CodecError, InvalidAppend
from eventlog.record import EVENT_ID_BYTES, START, Mark, NewEvent, Record

MAX_NAME_BYTES: Final = 512
MAX_RECORD_BYTES: Final = 1 << 20
MAX_INTEGER: Final = (1 << 63) - 1  # what a database can hold


@dataclass(frozen=True, slots=True)
class StreamWrite:
    """Events for one stream, decided when it stood at version ``expected`` (0: did not exist).

    ``scope`` is the stream itself unless stated; a stream never changes its scope. With ``seal``
    the last of the events ends the stream for good.
    """

    stream: str
    expected: int
    events: Sequence[NewEvent]
    scope: str = ""
    seal: bool = False

    def __post_init__(self) -> None:
        """Refuse what can never be stored."""
        if not self.scope:
            object.__setattr__(self, "scope", self.stream)
        _check_name(self.stream, "stream")
        if self.scope is not self.stream:
            _check_name(self.scope, "scope")
        if not 0 <= self.expected < MAX_INTEGER:
            raise InvalidAppend(f"expected version {self.expected} of stream {self.stream!r}")
        if not self.events:
            raise InvalidAppend(f"no events for stream {self.stream!r}")
        for event in self.events:
            _check_event(event)


@dataclass(frozen=True, slots=True)
class Unmoved:
    """A requirement: nothing in this scope lies past this position."""

    scope: str
    position: int

    def __post_init__(self) -> None:
        """Refuse a scope that cannot exist."""
        _check_name(self.scope, "scope")


@dataclass(frozen=True, slots=True)
class Append:
    """All of these writes or none of them, and only if the scopes named have not moved."""

    writes: Sequence[StreamWrite]
    unmoved: Sequence[Unmoved] = ()

    def __post_init__(self) -> None:
        """Refuse an append that no state of the log could accept."""
        if not self.writes:
            raise InvalidAppend("an append without writes")
        if len(self.writes) > 1 and len({w.stream for w in self.writes}) != len(self.writes):
            raise InvalidAppend("an append names a stream twice")

    @property
    def size(self) -> int:
        """The bytes that its events take."""
        size = 0
        for write in self.writes:
            for event in write.events:
                size += len(event.body) + len(event.meta)
        return size


@dataclass(frozen=True, slots=True)
class Receipt:
    """The records of an append, on disk, in the order of its writes."""

    records: Sequence[Record]

    @property
    def mark(self) -> Mark:
        """The place of the last record."""
        return self.records[-1].mark if self.records else START


def _check_name(name: str, what: str) -> None:
    if name.isascii() and "\0" not in name and 0 < len(name) <= MAX_NAME_BYTES:
        return
    try:
        cbor.check(name)
    except CodecError as exc:
        raise InvalidAppend(f"{what} name {name!r}: {exc}") from exc
    if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
        raise InvalidAppend(f"{what} name of {len(name)} characters: 1 to {MAX_NAME_BYTES} bytes")


def _check_event(event: NewEvent) -> None:
    _check_name(event.name, "event")
    if len(event.event_id) != EVENT_ID_BYTES:
        raise InvalidAppend(f"event id of {len(event.event_id)} bytes")
    if not 0 <= event.event_time < MAX_INTEGER or not 0 < event.schema < MAX_INTEGER:
        raise InvalidAppend(f"event time {event.event_time}, schema version {event.schema}")
    if len(event.body) + len(event.meta) > MAX_RECORD_BYTES:
        raise InvalidAppend(
            f"event {event.name!r} takes {len(event.body) + len(event.meta)} bytes;"
            f" at most {MAX_RECORD_BYTES} fit into a record"
        )
