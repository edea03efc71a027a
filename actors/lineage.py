"""A lineage: the attempts of one piece of work, counted in a stream without an actor."""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec import Struct

from perdure.eventlog.registry import EventRegistry

LINEAGE_EVENTS: Final = EventRegistry()


@LINEAGE_EVENTS.register
class AttemptTaken(Struct, frozen=True, kw_only=True):
    """A run is attempt number so-and-so of its root. The first attempt is the root itself."""

    event_name: ClassVar[str] = "lineage.attempt-taken"
    run_id: str
    attempt: int
    at: int


def lineage_stream(root_run_id: str) -> str:
    """Name the stream of a lineage."""
    return f"lineage/{root_run_id}"
