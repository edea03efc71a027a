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
from perdure.eventlog.errors import EventLogError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.actors.folded import Folded
    from perdure.eventlog.errors import Conflict
    from perdure.eventlog.record import Record

State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")

TRIES: Final = 50  # neighbours may write all the time; each try takes a few milliseconds
LEAST_WEIGHT: Final = 64 << 10  # bytes of records that are folded in a few milliseconds


class ScopeLog(ActorLog, Scopes, Protocol):
    """What such an actor needs of the log."""

    async def save_scope_snapshot(
        self, scope: str, position: int, event_id: bytes, *, fold: str, state: bytes
    ) -> None:
        """Keep what a fold makes of a scope up to a record of it."""


class ScopeActor(Actor[State, Command, Event]):
    """A stream that knows its scope."""

    __slots__ = ()

    _log: ScopeLog
    _tries = TRIES
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
        self.folded = await fold_scope_rest(self._log, self._decider, self.stream, self.folded)

    def _evolve(self, state: State, event: Event) -> State:
        return self._decider.evolve(state, event, Origin(self.stream, 0, 0))

    def _conditions(self, folded: Folded[State]) -> Sequence[Unmoved]:
        return [Unmoved(self.stream, folded.mark.position)]

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

    # A snapshot is worth its bytes when the records since the last one weigh as much as the state.

    def _snapshot_is_due(self) -> bool:
        folded = self.folded
        return folded is not None and folded.weight >= max(LEAST_WEIGHT, folded.snapshot_weight)

    async def _keep_a_snapshot(self) -> None:
        folded = self.folded
        assert folded is not None  # noqa: S101 - a snapshot was due
        state = self._decider.freeze_scope(folded.version, folded.state)
        self.folded = replace(folded, snapshot_weight=len(state))
        if len(state) > folded.weight:
            return  # not yet
        position = folded.mark.position
        self.folded = replace(self.folded, snapshot=position, weight=0)
        with suppress(EventLogError):
            await self._log.save_scope_snapshot(
                self.stream,
                position,
                folded.mark.event_id,
                fold=self._decider.fold,
                state=state,
            )
