"""Folding: a stream, or what a snapshot left of it to read, becomes a state.

The same fold gives an actor its state, and a reader the state that it had at an earlier place in
the log. A snapshot only shortens the way; one that cannot be read is passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from perdure.actors.folded import Folded
from perdure.eventlog.errors import CodecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.actors.decider import Decider
    from perdure.eventlog.reading import Page
    from perdure.eventlog.record import Mark, Record

State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")


class Streams(Protocol):
    """What folding needs of the log."""

    async def read_stream(self, stream: str, *, after: int = 0, at: Mark | None = None) -> Page:
        """Read a stream's records after a version, as the log was at a place."""

    async def read_from_snapshot(
        self, stream: str, fold: str, *, at: Mark | None = None
    ) -> tuple[bytes | None, Page]:
        """Read a stream from its newest usable snapshot on."""


async def fold_stream(
    log: Streams,
    decider: Decider[State, Command, Event],
    stream: str,
    *,
    at: Mark | None = None,
) -> Folded[State] | None:
    """Fold a stream, as the log was at a place; None if it did not exist."""
    frozen, page = await log.read_from_snapshot(stream, decider.fold, at=at)
    folded = None
    records = page.records
    if frozen is not None:
        try:
            folded = _folded(decider.thaw(frozen), records[0], snapshot=records[0].version)
            records = records[1:]
        except CodecError:
            page = await log.read_stream(stream, at=at)
            records = page.records
    folded = _onto(decider, folded, records)
    if page.more:
        folded = await fold_rest(log, decider, stream, folded, at=at)
    return folded


async def fold_rest(
    log: Streams,
    decider: Decider[State, Command, Event],
    stream: str,
    folded: Folded[State] | None,
    *,
    at: Mark | None = None,
) -> Folded[State] | None:
    """Fold what a stream has gained onto what is known of it."""
    while True:
        page = await log.read_stream(stream, after=folded.version if folded else 0, at=at)
        folded = _onto(decider, folded, page.records)
        if not page.more:
            return folded


def fold_events(
    decider: Decider[State, Command, Event], events: Sequence[Event], last: Record
) -> Folded[State]:
    """Fold all events of a stream, decoded already, the last of which is this record's."""
    state = decider.replay(events)
    assert state is not None  # noqa: S101 - a stream has events
    return _folded(state, last, snapshot=0)


def _onto(
    decider: Decider[State, Command, Event],
    folded: Folded[State] | None,
    records: Sequence[Record],
) -> Folded[State] | None:
    if not records:
        return folded
    decode, evolve = decider.events.decode, decider.evolve
    state = folded.state if folded is not None else decider.initial
    for record in records:
        state = evolve(state, decode(record))
    assert state is not None  # noqa: S101 - something was folded
    return _folded(state, records[-1], snapshot=folded.snapshot if folded is not None else 0)


def _folded(state: State, record: Record, *, snapshot: int) -> Folded[State]:
    return Folded(
        state, record.version, record.mark, record.commit_time, record.scope, snapshot=snapshot
    )
