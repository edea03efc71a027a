"""Appends: what a caller asks the log to write, checked before it waits for the disk."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError, InvalidAppend, RecordTooLarge
from perdure.eventlog.record import (
    EVENT_ID_BYTES,
    START,
    Mark,
    NewEvent,
    Record,
    SoundMetadata,
    check_metadata,
)

MAX_NAME_BYTES: Final = 512
MAX_RECORD_BYTES: Final = 1 << 20
MAX_APPEND_EVENTS: Final = 1000
MAX_APPEND_BYTES: Final = 4 << 20
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
        object.__setattr__(self, "events", tuple(self.events))  # nobody changes it while it waits
        _check_name(self.stream, "stream")
        if self.scope is not self.stream:
            _check_name(self.scope, "scope")
        if type(self.expected) is not int or not 0 <= self.expected < MAX_INTEGER:
            raise InvalidAppend(f"expected version {self.expected} of stream {self.stream!r}")
        if not self.events:
            raise InvalidAppend(f"no events for stream {self.stream!r}")
        for event in self.events:
            _check_event(event)


@dataclass(frozen=True, slots=True)
class Unmoved:
    """A requirement: nothing in this scope lies past this position.

    With ``names``, nothing of these events; others may have come.
    """

    scope: str
    position: int
    names: frozenset[str] | None = None

    def __post_init__(self) -> None:
        """Refuse a scope that cannot exist."""
        _check_name(self.scope, "scope")


@dataclass(frozen=True, slots=True)
class Append:
    """All of these writes or none of them, and only if the scopes named have not moved."""

    writes: Sequence[StreamWrite]
    unmoved: Sequence[Unmoved] = ()
    size: int = field(init=False)  # the bytes that its events take

    def __post_init__(self) -> None:
        """Refuse an append that no state of the log could accept."""
        object.__setattr__(self, "writes", tuple(self.writes))
        object.__setattr__(self, "unmoved", tuple(self.unmoved))
        if not self.writes:
            raise InvalidAppend("an append without writes")
        if len(self.writes) > 1 and len({w.stream for w in self.writes}) != len(self.writes):
            raise InvalidAppend("an append names a stream twice")
        events = [event for write in self.writes for event in write.events]
        object.__setattr__(self, "size", sum([len(e.body) + len(e.meta) for e in events]))
        if len(events) > 1:
            self._check_many(events)

    def _check_many(self, events: Sequence[NewEvent]) -> None:
        if len(events) > MAX_APPEND_EVENTS or self.size > MAX_APPEND_BYTES:
            raise InvalidAppend(
                f"an append of {len(events)} events and {self.size} bytes; at most"
                f" {MAX_APPEND_EVENTS} events and {MAX_APPEND_BYTES} bytes are written at once"
            )
        if len({event.event_id for event in events}) != len(events):
            raise InvalidAppend("an append has one event id twice")


@dataclass(frozen=True, slots=True)
class Receipt:
    """The records of an append, on disk, in the order of its writes."""

    records: Sequence[Record]

    @property
    def mark(self) -> Mark:
        """The place of the last record."""
        return self.records[-1].mark if self.records else START


def _check_meta(meta: bytes) -> None:
    try:
        check_metadata(meta)
    except CodecError as exc:
        raise InvalidAppend(f"metadata that nobody could read: {exc}") from exc


def _check_name(name: str, what: str) -> None:
    if type(name) is not str:
        raise InvalidAppend(f"{what} name of type {type(name).__name__}")
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
    if not (type(event.event_id) is type(event.body) is bytes and isinstance(event.meta, bytes)):
        raise InvalidAppend(f"event {event.name!r}: id, body and metadata are bytes")
    if len(event.event_id) != EVENT_ID_BYTES:
        raise InvalidAppend(f"event id of {len(event.event_id)} bytes")
    if type(event.event_time) is not int or type(event.schema) is not int:
        raise InvalidAppend(f"event {event.name!r} has a time or schema that is no integer")
    if not 0 <= event.event_time < MAX_INTEGER or not 0 < event.schema < MAX_INTEGER:
        raise InvalidAppend(f"event time {event.event_time}, schema version {event.schema}")
    if (size := len(event.body) + len(event.meta)) > MAX_RECORD_BYTES:
        raise RecordTooLarge(event.name, size, MAX_RECORD_BYTES)
    if type(event.meta) is not SoundMetadata:
        _check_meta(event.meta)
