"""A decider: everything there is to say about one kind of actor, in two pure functions.

``decide(state, command)`` gives the events that follow, or raises a Refusal. ``evolve(state,
event)`` gives the state after an event and refuses nothing. A state is always the fold of a
stream, live as well as in the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from eventlog.record import FieldValue
from eventlog.registry import EventRegistry

State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider(Generic[State, Command, Event]):
    """The rules of one kind of actor. ``initial`` is the state before the first event."""

    initial: State | None
    decide: Callable[[State, Command], tuple[Event, ...]]
    evolve: Callable[[State | None, Event], State]
    describe: Callable[[State | None, State], Mapping[str, FieldValue]]  # what followers filter by
    is_over: Callable[[State], bool]  # the state after which the stream is sealed
    events: EventRegistry
    fold: str  # the version of ``evolve``: snapshots made by another are not used

    def replay(self, events: Iterable[Event], state: State | None = None) -> State | None:
        """Fold a history onto a state."""
        for event in events:
            state = self.evolve(state, event)
        return state
