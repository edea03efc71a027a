"""What the measurements write and read: small events as the run of an agent would make them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from perdure.eventlog import EventRegistry, Metadata, RealEnv, SqliteStore, open_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from perdure.eventlog import EventLog, NewEvent

EVENTS = EventRegistry()


@EVENTS.register
@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded:
    """An event of the size and shape that a log is full of."""

    event_name: ClassVar[str] = "bench.step-ended"
    step: int
    tool: str
    succeeded: bool
    output: str | None
    at: int


def new_events(number: int) -> list[NewEvent]:
    """Make events that differ, all of about the same size, ahead of a measurement."""
    env = RealEnv()
    return [_new_event(env, each) for each in range(number)]


def _new_event(env: RealEnv, number: int) -> NewEvent:
    """Make the event of a number, with a fresh id."""
    at = env.now()
    event_id = env.new_id()
    event = StepEnded(
        step=number,
        tool="search",
        succeeded=number % 10 != 0,
        output=f"found {number} of some documents that may be of interest",
        at=at,
    )
    metadata = Metadata(
        principal="user/17",
        fields={"kind": "step", "attempt": number % 3, "caused_by": str(event_id)},
    )
    return EVENTS.encode(event, event_id=event_id.bytes, event_time=at, metadata=metadata)


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[EventLog]:
    """Open a log in the real world as its writer, and close it."""
    env = RealEnv()
    store = SqliteStore.open(path, env=env)
    try:
        async with open_log(env, store) as log:
            yield log
    finally:
        store.close()
