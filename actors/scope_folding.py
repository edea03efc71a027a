"""Folding a scope: the records of a stream and of its neighbours become one state.

The scope of an actor that folds it is called as its stream. Records are folded in the order of
their positions; those that the actor does not want only move its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from perdure.actors.folded import Folded
from perdure.eventlog.errors import CodecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.actors.decider import Decider
    from perdure.eventlog.reading import Page
    from perdure.eventlog.record import Mark, Record

State = TypeVar("State")


class Scopes(Protocol):
    """What folding a scope needs of the log."""

    async def read_scope(self, scope: str, *, after: int = 0, at: Mark | None = None) -> Page:
        """Read a scope's records after a position, as the log was at a place."""

    async def read_scope_from_snapshot(
        self, scope: str, fold: str, *, at: Mark | None = None
    ) -> tuple[bytes | None, Page]:
        """Read a scope from its newest usable snapshot on."""


async def fold_scope(
    log: Scopes, decider: Decider[State, Any, Any], stream: str, *, at: Mark | None = None
) -> Folded[State] | None:
    """Fold the scope of a stream, as the log was at a place; None if the stream did not exist."""
    frozen, page = await log.read_scope_from_snapshot(stream, decider.fold, at=at)
    folded, records = None, page.records
    if frozen is not None:
        try:
            folded = _thawed(decider, frozen, records[0])
            records = records[1:]
        except CodecError:
            page = await log.read_scope(stream, at=at)
            records = page.records
    folded = fold_records(decider, stream, folded, records)
    if page.more:
        after = page.records[-1].position
        folded = await fold_scope_rest(log, decider, stream, folded, after=after, at=at)
    return folded if folded is not None and folded.version else None


async def fold_scope_rest(
    log: Scopes,
    decider: Decider[State, Any, Any],
    stream: str,
    folded: Folded[State] | None,
    *,
    after: int,
    at: Mark | None = None,
) -> Folded[State] | None:
    """Fold what a scope has gained after a position onto what is known of it."""
    while True:
        page = await log.read_scope(stream, after=after, at=at)
        folded = fold_records(decider, stream, folded, page.records)
        if not page.more:
            return folded
        after = page.records[-1].position


def fold_records(
    decider: Decider[State, Any, Any],
    stream: str,
    folded: Folded[State] | None,
    records: Sequence[Record],
) -> Folded[State] | None:
    """Fold records of a scope, in the order of their positions, onto what is known of it."""
    if not records:
        return folded
    state = decider.initial if folded is None else folded.state
    version = 0 if folded is None else folded.version
    weight = 0 if folded is None else folded.weight
    for record in records:
        state = decider.evolve_record(state, record, stream)
        weight += record.size
        if record.stream == stream:
            version = record.version
    if state is None:
        return None  # so far only records that the decider ignores
    last = records[-1]
    return Folded(
        state,
        version,
        last.mark,
        last.commit_time,
        last.scope,
        0 if folded is None else folded.snapshot,
        weight,
        0 if folded is None else folded.snapshot_weight,
    )


def _thawed(decider: Decider[State, Any, Any], frozen: bytes, last: Record) -> Folded[State]:
    """Give what a snapshot holds, which ends with this record."""
    version, state = decider.thaw_scope(frozen)
    return Folded(
        state,
        version,
        last.mark,
        last.commit_time,
        last.scope,
        snapshot=last.position,
        snapshot_weight=len(frozen),
    )
