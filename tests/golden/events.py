"""The events of the golden logs: one of every shape that a record can have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from perdure.eventlog.registry import EventRegistry

EVENTS = EventRegistry()


class Mood(StrEnum):
    """An enumeration."""

    CALM = "calm"
    TENSE = "tense"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A nested value."""

    name: str
    height: float


@EVENTS.register
@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    """Every kind of field."""

    event_name: ClassVar[str] = "golden.everything"
    text: str
    number: int
    share: float
    flag: bool
    nothing: str | None
    raw: bytes
    mood: Mood
    places: tuple[Place, ...]
    table: dict[str, int]


@EVENTS.register
@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """No fields at all."""

    event_name: ClassVar[str] = "golden.empty"


EXAMPLES = (
    Empty(),
    Everything(
        text="Grüße, 世界 🌍",
        number=-(1 << 63),
        share=0.1,
        flag=True,
        nothing=None,
        raw=bytes(range(256)),
        mood=Mood.TENSE,
        places=(Place(name="a", height=8848.86), Place(name="", height=-0.0)),
        table={"x": 1, "y": (1 << 63) - 1},
    ),
    Everything(
        text="",
        number=0,
        share=1e308,
        flag=False,
        nothing="something",
        raw=b"",
        mood=Mood.CALM,
        places=(),
        table={},
    ),
)
