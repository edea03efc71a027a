"""A decider: everything there is to say about one kind of actor, in two pure functions.

``decide(state, command)`` gives the events that follow, or raises a Refusal. ``evolve(state,
event)`` gives the state after an event and refuses nothing. A state is always the fold of a
stream, live as well as in the past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError
from perdure.eventlog.record import FieldValue
from perdure.eventlog.registry import EventRegistry

State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider(Generic[State, Command, Event]):
    """The rules of one kind of actor. ``initial`` is the state before the first event."""

    state: type[State]
    initial: State | None
    decide: Callable[[State, Command], tuple[Event, ...]]
    evolve: Callable[[State | None, Event], State]
    describe: Callable[[State | None, State], Mapping[str, FieldValue]]  # what followers filter by
    is_over: Callable[[State], bool]  # the state after which the stream is sealed
    events: EventRegistry
    fold: str  # the version of ``evolve``: snapshots made by another are not used

    def replay(self, events: Iterable[Event], state: State | None = None) -> State | None:
        """Fold a history onto a state, or onto the initial one."""
        state = self.initial if state is None else state
        for event in events:
            state = self.evolve(state, event)
        return state

    def freeze(self, state: State) -> bytes:
        """Give a state as bytes, for a snapshot."""
        return cbor.encode(msgspec.to_builtins(state, builtin_types=(bytes,)))

    def thaw(self, frozen: bytes) -> State:
        """Give the state that was frozen by this very version of the fold."""
        try:
            return msgspec.convert(cbor.decode_strict(frozen), self.state, builtin_types=(bytes,))
        except msgspec.ValidationError as exc:
            raise CodecError(f"a snapshot of {self.fold} cannot be read: {exc}") from exc
