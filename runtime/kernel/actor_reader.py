"""Reading actors of one kind: as they are and as they were, by those who may see them.

An actor of another tenant is one that does not exist. Actors that live are asked; the others are
folded. Nothing here needs an event loop: beside a server, or after it, the same code reads a log
that answers at once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from perdure.actors.errors import Crashed, NoSuchActor
from perdure.actors.folding import Streams, fold_stream
from perdure.actors.scope_folding import Scopes, fold_scope
from perdure.eventlog.errors import StoreDamaged, UnreadableRecord
from perdure.runtime.kernel.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVarTuple, Unpack

    from perdure.actors.folded import Folded
    from perdure.actors.kind import Kind
    from perdure.eventlog.record import Mark
    from perdure.eventlog.store import Store
    from perdure.runtime.kernel.principal import Principal

    Arguments = TypeVarTuple("Arguments")

Result = TypeVar("Result")
State = TypeVar("State")
MOST_TOLD: Final = 1000  # unreadable actors that are logged
_log = logging.getLogger("perdure.reader")


class Readable(Streams, Scopes, Protocol):
    """What reading needs of the log."""

    @property
    def store(self) -> Store:
        """What it is stored in."""

    def cursor(self, mark: Mark) -> str:
        """Give the cursor for a place."""

    async def head(self) -> Mark:
        """Give the place of the newest record."""

    async def resolve(self, cursor: str) -> Mark:
        """Find the place that a cursor names."""

    async def mark_before(self, instant: int) -> Mark:
        """Find the last record committed at or before an instant."""

    async def in_thread(
        self,
        fn: Callable[[Unpack[Arguments]], Result],
        *args: *Arguments,
    ) -> Result:
        """Call a blocking function of the store."""


class Living(Protocol[State]):
    """The actors of a kind, some of which live."""

    def peek(self, stream: str) -> Folded[State] | None:
        """Give what a live actor knows."""

    async def look_briefly(self, stream: str) -> Folded[State] | None:
        """Give the state of an actor after what it is writing, unless that takes long."""


class ActorReader(Generic[State]):
    """Reads the actors of one kind in one log."""

    def __init__(
        self, kind: Kind[State, Any, Any], log: Readable, living: Living[State] | None = None
    ) -> None:
        """Ask the actors that live, if there are any, and fold the others."""
        self._kind = kind
        self._log = log
        self._living = living
        self._told = set[str]()  # actors that cannot be read; at most MOST_TOLD

    async def head(self) -> Mark:
        """Find the place up to which everything is written."""
        return await self._log.head()

    async def place(self, at: str | int) -> Mark:
        """Find the place that a cursor or an instant (UTC nanoseconds) names."""
        if isinstance(at, int):
            return await self._log.mark_before(at)
        return await self._log.resolve(at)

    async def now(self, principal: Principal, actor_id: str) -> Folded[State]:
        """Give an actor as it is."""
        return self._visible(principal, actor_id, await self._known(self._kind.stream(actor_id)))

    async def at(self, principal: Principal, actor_id: str, at: Mark) -> Folded[State]:
        """Give an actor as it was at a place in the log."""
        stream, known = self._kind.stream(actor_id), None
        if self._living is not None and self._living.peek(stream) is not None:
            known = await self._living.look_briefly(stream)  # with all it has written up to there
        if known is None or known.mark.position > at.position:
            known = await self._folded(stream, at)
        return self._visible(principal, actor_id, known)

    async def read(
        self, principal: Principal, actor_id: str, at: str | int | None
    ) -> tuple[Folded[State], Mark]:
        """Give an actor as it is, or was at a cursor or an instant, and where that is true."""
        if at is None:
            folded = await self.now(principal, actor_id)
            return folded, folded.mark
        place = await self.place(at)
        return await self.at(principal, actor_id, place), place

    async def all_at(
        self, principal: Principal, actor_ids: Iterable[str], at: Mark
    ) -> tuple[list[Folded[State]], list[str]]:
        """Give actors as they were at a place in the log, and the ids of those unreadable."""
        found: list[Folded[State]] = []
        unreadable: list[str] = []
        for actor_id in actor_ids:
            try:
                found.append(await self.at(principal, actor_id, at))
            except (Crashed, UnreadableRecord, StoreDamaged) as error:
                unreadable.append(actor_id)
                self._tell(actor_id, error)
        return found, unreadable

    def _tell(self, actor_id: str, error: Exception) -> None:
        """Log that an actor cannot be read, once for each."""
        if actor_id not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(actor_id)
            told = "%s %s cannot be read and is left out of lists: %s"
            _log.warning(told, self._kind.name, actor_id, error)

    async def require(self, principal: Principal, actor_id: str) -> State:
        """Give the state of an actor, maybe not its newest; refuse an id that stands for none."""
        stream = self._kind.stream(actor_id)
        known = None if self._living is None else self._living.peek(stream)
        if known is None:
            return (await self.now(principal, actor_id)).state
        return self._visible(principal, actor_id, known).state

    async def _known(self, stream: str) -> Folded[State] | None:
        """Give all that was acknowledged; where nothing can be written, what is stored."""
        known = None
        if self._living is not None:
            try:
                known = await self._living.look_briefly(stream)
            except NoSuchActor:
                return None
        return known or await self._folded(stream)

    async def _folded(self, stream: str, at: Mark | None = None) -> Folded[State] | None:
        decider = self._kind.decider
        if decider.folds_scope:
            return await fold_scope(self._log, decider, stream, at=at)
        return await fold_stream(self._log, decider, stream, at=at)

    def _visible(
        self, principal: Principal, actor_id: str, folded: Folded[State] | None
    ) -> Folded[State]:
        kind = self._kind
        if folded is None or kind.tenant(folded.state) != principal.tenant:
            about = {kind.id_field: actor_id}
            raise OperationError(
                kind.not_found, f"there is no such {kind.noun or kind.name}", **about
            )
        return folded
