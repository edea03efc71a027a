"""An actor that folds its scope: it knows its neighbours without asking them.

Its neighbours write while it decides. So it folds the scope to its head before it decides, and its
append holds only if the scope has not moved since; if it has, it folds what came and decides again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from perdure.actors.decider import Origin
from perdure.actors.errors import NoSuchActor
from perdure.actors.mailbox import Actor, ActorLog
from perdure.actors.scope_folding import Scopes, fold_records, fold_scope, fold_scope_rest
from perdure.eventlog.append import Unmoved
from perdure.eventlog.errors import EventLogError, ScopeMoved
from perdure.eventlog.record import Record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from perdure.actors.ask import Ask
    from perdure.actors.folded import Folded
    from perdure.eventlog.append import StreamWrite
    from perdure.eventlog.errors import Conflict
    from perdure.eventlog.record import NewEvent

State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")

LEAST_WEIGHT: Final = 64 << 10  # bytes of records that are folded in a few milliseconds


class ScopeLog(ActorLog, Scopes, Protocol):
    """What such an actor needs of the log."""

    async def save_scope_snapshot(
        self, scope: str, position: int, event_id: bytes, *, fold: str, state: bytes
    ) -> None:
        """Keep what a fold makes of a scope up to a record of it."""

    def hold(self, scope: str) -> AbstractAsyncContextManager[None]:
        """Let appends to a scope wait for a block, but those that require it unmoved."""

    def recent_in_scope(self, scope: str, after: int) -> Sequence[Record] | None:
        """Give a scope's records after a position from memory; None if they must be read."""


class ScopeActor(Actor[State, Command, Event]):
    """One stream, and the folded state of its whole scope."""

    __slots__ = ()

    _log: ScopeLog
    _knows_all = False

    async def _fold(self) -> Folded[State]:
        """Fold the scope up to its head."""
        if self.folded is not None:
            await self._fold_more()
            return self.folded
        folded = await fold_scope(self._log, self._decider, self.stream)
        if folded is None:
            raise NoSuchActor(self.stream)
        return folded

    async def _fold_more(self) -> None:
        """Fold what came: from memory, in which case nothing else comes before the next append."""
        folded = self.folded
        assert folded is not None  # noqa: S101 - it was folded before
        after = folded.mark.position
        recent = self._log.recent_in_scope(self.stream, after)
        if recent is not None:
            self.folded = fold_records(self._decider, self.stream, folded, recent)
        else:
            self.folded = await fold_scope_rest(
                self._log, self._decider, self.stream, folded, after=after
            )

    async def _handle(self, asks: list[Ask[State, Command]]) -> None:
        """Decide and append; if the neighbours are always faster, let them wait for a moment."""
        try:
            await super()._handle(asks)
        except ScopeMoved:
            async with self._log.hold(self.stream):
                await super()._handle(asks)

    def _evolve(self, state: State, event: Event) -> State:
        return self._decider.evolve(state, event, Origin(self.stream, 0, 0))

    def _conditions(self, folded: Folded[State]) -> Sequence[Unmoved]:
        """Nothing that it folds may have come; what else its neighbours write does not matter."""
        return [
            Unmoved(self.stream, folded.mark.position, frozenset(self._decider.neighbours or ()))
        ]

    def _decide(self, state: State, ask: Ask[State, Command], events: list[NewEvent]) -> State:
        """Fold first what is written along: a fold that fails leaves the log untouched."""
        along: State | None = state
        for write in ask.also:
            if write.scope == self.stream:
                for event in write.events:
                    along = self._decider.evolve_record(along, _undated(write, event), self.stream)
        return super()._decide(state, ask, events)

    def _is_mine(self, conflict: Conflict) -> bool:
        return super()._is_mine(conflict) or getattr(conflict, "scope", None) == self.stream

    def _after(
        self,
        folded: Folded[State],
        state: State,  # noqa: ARG002 - decided without positions: fold what was written
        records: Sequence[Record],
    ) -> Folded[State]:
        """Fold what was written, in the order of positions: nothing else has come since."""
        written = sorted(record for record in records if record.scope == self.stream)
        return fold_records(self._decider, self.stream, folded, written) or folded

    # A snapshot is worth its bytes when the records since the last one weigh as much as that one.

    def _snapshot_is_due(self) -> bool:
        folded = self.folded
        return folded is not None and folded.weight >= max(LEAST_WEIGHT, folded.snapshot_weight)

    async def _keep_a_snapshot(self) -> None:
        folded = self.folded
        assert folded is not None  # noqa: S101 - a snapshot was due
        position = folded.mark.position
        self.folded = replace(
            folded, snapshot=position, weight=0, snapshot_weight=max(folded.weight, LEAST_WEIGHT)
        )
        with suppress(EventLogError, TypeError):  # it is a cache
            state = self._decider.freeze_scope(folded.version, folded.state)
            self.folded = replace(self.folded, snapshot_weight=len(state))
            await self._log.save_scope_snapshot(
                self.stream,
                position,
                folded.mark.event_id,
                fold=self._decider.fold,
                state=state,
            )


def _undated(write: StreamWrite, event: NewEvent) -> Record:
    """Give an event as the record that it will be, without position and commit time."""
    return Record(
        0,
        write.stream,
        0,
        event.name,
        event.body,
        write.scope,
        event.event_id,
        event.event_time,
        0,
        event.schema,
        0,
        bytes(event.meta),
    )
