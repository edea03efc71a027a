"""Event names and event classes: the only place where the two meet.

An event class is a frozen dataclass, or a frozen ``msgspec.Struct``, which is made and read in a
fraction of the time. It has an ``event_name``, a string that never changes and is never a Python
path. Its stored shape has a version (``schema_version``, 1 unless stated). When a shape must
change, the class moves to the next version and an upcaster turns stored maps of the old one into
the new: records themselves are never rewritten.

    events = EventRegistry()

    @events.register
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Renamed:
        event_name: ClassVar[str] = "example.renamed"
        schema_version: ClassVar[int] = 2
        title: str

    @events.upcast("example.renamed", 1)
    def _(stored: dict[str, Any]) -> dict[str, Any]:
        return {"title": stored["name"]}
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import is_dataclass
from typing import Any, TypeVar

import msgspec

from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError, UnknownEvent, UnreadableRecord
from perdure.eventlog.record import NO_METADATA, Metadata, NewEvent, Record

Event = Any  # a registered event class's instance; what they share is not a base class
Stored = dict[str, Any]
Upcaster = Callable[[Stored], Stored]
EventClass = TypeVar("EventClass", bound=type)


class EventRegistry:
    """Event classes by the name that the log stores, with their upcasters."""

    def __init__(self) -> None:
        """Start with no events."""
        self._classes: dict[str, type] = {}
        self._names: dict[type, tuple[str, int]] = {}
        self._upcasters: dict[tuple[str, int], Upcaster] = {}

    def register(self, cls: EventClass) -> EventClass:
        """Take in an event class (a decorator). A name can be taken only once."""
        name = getattr(cls, "event_name", None)
        is_data = is_dataclass(cls) or issubclass(cls, msgspec.Struct)
        if not isinstance(name, str) or not name or not is_data:
            raise TypeError(f"{cls.__qualname__} needs an event_name and must be a dataclass")
        if name in self._classes:
            raise TypeError(f"event name {name!r} is taken by {self._classes[name].__qualname__}")
        with suppress(msgspec.ValidationError):
            msgspec.convert({}, cls)  # a type that could never be decoded fails here, not later
        self._classes[name] = cls
        self._names[cls] = (name, getattr(cls, "schema_version", 1))
        return cls

    def upcast(self, name: str, from_version: int) -> Callable[[Upcaster], Upcaster]:
        """Declare how a stored map of one schema version becomes one of the next (a decorator)."""

        def declare(upcaster: Upcaster) -> Upcaster:
            if (name, from_version) in self._upcasters:
                raise TypeError(f"{name!r} has an upcaster from version {from_version} already")
            self._upcasters[name, from_version] = upcaster
            return upcaster

        return declare

    def __iter__(self) -> Iterator[type]:
        """Go through the event classes in order of their names."""
        return iter(self._classes[name] for name in sorted(self._classes))

    def knows(self, record: Record) -> bool:
        """Tell whether a record's event is among these, and not of a newer schema."""
        known = self._classes.get(record.name)
        return known is not None and record.schema <= self._names[known][1]

    def encode(
        self,
        event: Event,
        *,
        event_id: bytes,
        event_time: int,
        metadata: Metadata | bytes | None = None,
    ) -> NewEvent:
        """Make an event ready for an append. Its metadata may be encoded already."""
        try:
            name, schema = self._names[type(event)]
        except KeyError:
            raise CodecError(f"{type(event).__qualname__} is not a registered event") from None
        try:
            body = cbor.encode(msgspec.to_builtins(event, builtin_types=(bytes,)))
        except TypeError as exc:
            raise CodecError(f"a {name!r} event holds what cannot be stored: {exc}") from exc
        if metadata is None:
            metadata = NO_METADATA
        return NewEvent(
            name=name,
            body=body,
            event_id=event_id,
            event_time=event_time,
            schema=schema,
            meta=metadata.encode() if isinstance(metadata, Metadata) else metadata,
        )

    def check(self, event: Event) -> int:
        """Raise CodecError unless an event can be stored and read again; give its size in bytes."""
        try:
            stored = msgspec.to_builtins(event, builtin_types=(bytes,))
            msgspec.convert(stored, type(event))
        except (TypeError, msgspec.ValidationError) as exc:
            name = self._names[type(event)][0]
            raise CodecError(f"a {name!r} event cannot hold this: {exc}") from exc
        return len(cbor.encode(stored))

    def decode(self, record: Record) -> Event:
        """Give a record's event as an instance of its class, upcast to the newest shape.

        Raises UnknownEvent if a newer release has written it, UnreadableRecord if it is damaged.
        """
        cls = self._classes.get(record.name)
        if cls is None:
            raise UnknownEvent(record.name, record.schema)
        try:
            stored = cbor.decode(record.body)
        except cbor.DecodeError as exc:
            raise UnreadableRecord(f"record {record.position} holds no CBOR: {exc}") from exc
        if record.schema != self._names[cls][1]:
            stored = self._upcast(record, stored, self._names[cls][1])
        try:
            return msgspec.convert(stored, cls)
        except msgspec.ValidationError as exc:
            raise UnreadableRecord(
                f"record {record.position} is no {record.name!r}: {exc}"
            ) from exc

    def _upcast(self, record: Record, stored: Stored, newest: int) -> Stored:
        if record.schema > newest:
            raise UnknownEvent(record.name, record.schema)
        for version in range(record.schema, newest):
            upcaster = self._upcasters.get((record.name, version))
            if upcaster is None:
                raise UnknownEvent(record.name, version)
            try:
                stored = upcaster(stored)
            except Exception as exc:
                message = f"record {record.position} cannot be upcast: {exc!r}"
                raise UnreadableRecord(message) from exc
        return stored
