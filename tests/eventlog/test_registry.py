from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar

import pytest

from perdure.eventlog import (
    CodecError,
    EventRegistry,
    Metadata,
    NewEvent,
    Record,
    UnknownEvent,
    UnreadableRecord,
    cbor,
)
from perdure.eventlog.testing import EXAMPLE_TIME, example_record


class Colour(StrEnum):
    """An enumeration inside an event."""

    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A value inside an event."""

    x: int
    y: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Painted:
    """An event with every kind of field."""

    event_name: ClassVar[str] = "test.painted"
    schema_version: ClassVar[int] = 3
    colour: Colour
    points: tuple[Point, ...]
    note: str | None
    raw: bytes = b""
    share: float = 0.5


@pytest.fixture
def registry() -> EventRegistry:
    """A registry with one event and its past."""
    registry = EventRegistry()
    registry.register(Painted)

    @registry.upcast("test.painted", 1)
    def _(stored: dict[str, Any]) -> dict[str, Any]:
        return {"colour": stored["color"], "points": stored["points"]}

    @registry.upcast("test.painted", 2)
    def _(stored: dict[str, Any]) -> dict[str, Any]:
        return {**stored, "note": "from the old days"}

    return registry


PAINTED = Painted(colour=Colour.RED, points=(Point(x=1, y=2),), note="hello", raw=b"\x00\xff")


def stored(new: NewEvent) -> Record:
    """What the log makes of a new event."""
    record = example_record(7)
    return record._replace(name=new.name, body=new.body, schema=new.schema, meta=new.meta)


def encode(registry: EventRegistry, event: object, metadata: Metadata | None = None) -> NewEvent:
    """Encode with an example id."""
    return registry.encode(event, event_id=bytes(16), event_time=EXAMPLE_TIME, metadata=metadata)


def test_an_event_comes_back_as_its_class(registry: EventRegistry) -> None:
    """Enumerations, nested values, bytes and missing values survive storage."""
    assert registry.decode(stored(encode(registry, PAINTED))) == PAINTED


def test_the_stored_name_is_not_the_name_of_the_class(registry: EventRegistry) -> None:
    """The log stores the event's own name and version, and a plain map."""
    new = encode(registry, PAINTED, Metadata(principal="a/b", fields={"status": "running"}))
    assert (new.name, new.schema) == ("test.painted", 3)
    assert cbor.decode(new.body)["colour"] == "red"
    assert stored(new).metadata == Metadata(principal="a/b", fields={"status": "running"})


def test_old_shapes_are_brought_forward(registry: EventRegistry) -> None:
    """A record of version 1 passes through every upcaster on the way."""
    old = stored(encode(registry, PAINTED))._replace(
        schema=1, body=cbor.encode({"color": "red", "points": [{"x": 1, "y": 2}]})
    )
    expected = replace(PAINTED, note="from the old days", raw=b"")
    assert registry.decode(old) == expected


def test_fields_of_a_later_release_are_passed_over(registry: EventRegistry) -> None:
    """A field that this release does not know does no harm."""
    new = encode(registry, PAINTED)
    body = cbor.encode({**cbor.decode(new.body), "added_later": 1})
    assert registry.decode(stored(new)._replace(body=body)) == PAINTED


def test_what_is_unknown_is_refused_by_name(registry: EventRegistry) -> None:
    """An unknown event, a newer shape and a missing upcaster are all UnknownEvent."""
    assert issubclass(UnknownEvent, UnreadableRecord)
    record = stored(encode(registry, PAINTED))
    for changed in (record._replace(name="test.other"), record._replace(schema=4)):
        with pytest.raises(UnknownEvent, match="not known to this release"):
            registry.decode(changed)
    without = EventRegistry()
    without.register(Painted)
    with pytest.raises(UnknownEvent):
        without.decode(record._replace(schema=2))


def test_a_body_that_does_not_fit_names_its_record(registry: EventRegistry) -> None:
    """A damaged record is unreadable, with its place, and not a fault of whoever asks for it."""
    record = stored(encode(registry, PAINTED))
    for body in (cbor.encode({"colour": "blue"}), cbor.encode(7), record.body[:-1], b"", b"\xff"):
        with pytest.raises(UnreadableRecord, match="record 7"):
            registry.decode(record._replace(body=body))


def test_a_name_is_taken_once(registry: EventRegistry) -> None:
    """Two classes cannot share a name, nor two upcasters a version."""
    with pytest.raises(TypeError, match="is taken by Painted"):
        registry.register(Painted)
    with pytest.raises(TypeError, match="already"):
        registry.upcast("test.painted", 1)(lambda stored: stored)
    with pytest.raises(TypeError, match="needs an event_name"):
        registry.register(Point)


def test_only_registered_events_are_encoded(registry: EventRegistry) -> None:
    """Anything else is refused before it is near the log."""
    with pytest.raises(CodecError, match="Point is not a registered event"):
        encode(registry, Point(x=1, y=2))
    with pytest.raises(CodecError, match="NUL"):
        encode(registry, replace(PAINTED, note="\0"))


def test_the_events_can_be_listed(registry: EventRegistry) -> None:
    """Documentation goes through all event classes by name."""
    assert list(registry) == [Painted]


def test_a_shape_that_could_never_be_read_is_refused_when_registered() -> None:
    """Two dataclasses in one field cannot be told apart in the log."""

    @dataclass(frozen=True)
    class Ambiguous:
        event_name: ClassVar[str] = "test.ambiguous"
        what: Point | Painted

    with pytest.raises(TypeError):
        EventRegistry().register(Ambiguous)


def test_failures_on_the_way_are_codec_errors(registry: EventRegistry) -> None:
    """An upcaster that breaks and a value that has no form are reported, not thrown about."""
    broken = stored(encode(registry, PAINTED))._replace(schema=1, body=cbor.encode({}))
    with pytest.raises(UnreadableRecord, match="record 7 cannot be upcast"):
        registry.decode(broken)
    with pytest.raises(CodecError, match="cannot be stored"):
        encode(registry, replace(PAINTED, note=object()))  # type: ignore[arg-type]
