"""A decider: everything there is to say about one kind of actor, in two pure functions.

``decide(state, command)`` gives the events that follow, or raises a Refusal. ``evolve(state,
event)`` gives the state after an event and refuses nothing. A state is always the fold of a
stream, live as well as in the past.

A decider may fold its whole scope instead: its own stream and those of its neighbours. Then
``evolve(state, event, origin)`` sees where each event comes from, and a decision holds only if the
scope has not moved meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError
from perdure.eventlog.record import FieldValue, Record
from perdure.eventlog.registry import EventRegistry

MOST_FROZEN: Final = 256 << 20  # bytes of a snapshot, which are our own
State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")


class Origin(NamedTuple):
    """Where an event of a scope comes from."""

    stream: str
    position: int  # 0 of an event that was decided and is not written yet
    commit_time: int  # UTC nanoseconds; 0 as above


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider(Generic[State, Command, Event]):
    """The rules of one kind of actor. ``initial`` is the state before the first event."""

    state: type[State]
    initial: State | None
    decide: Callable[[State, Command], tuple[Event, ...]]
    evolve: Callable[..., State]  # (state, event), and the origin if it folds its scope
    describe: Callable[[State | None, State], Mapping[str, FieldValue]]  # what followers filter by
    is_over: Callable[[State], bool]  # the state after which the stream is sealed
    events: EventRegistry
    fold: str  # the version of ``evolve``: snapshots made by another are not used
    neighbours: Mapping[str, EventRegistry] | None = None  # in its scope: events that it folds
    trace: Callable[[State], str | None] = lambda _: None  # the trace that its events belong to

    @property
    def folds_scope(self) -> bool:
        """Whether it folds its whole scope, and not only its stream."""
        return self.neighbours is not None

    def evolve_record(self, state: State | None, record: Record, own: str) -> State | None:
        """Fold a record of a scope: one of its own stream, or a neighbour's that it wants."""
        registry = self.events if record.stream == own else (self.neighbours or {}).get(record.name)
        if registry is None:
            return state
        origin = Origin(record.stream, record.position, record.commit_time)
        return self.evolve(state, registry.decode(record), origin)

    def replay(self, events: Iterable[Event], state: State | None = None) -> State | None:
        """Fold a history onto a state, or onto the initial one."""
        state = self.initial if state is None else state
        for event in events:
            state = self.evolve(state, event)
        return state

    def freeze(self, state: State) -> bytes:
        """Give a state as bytes, for a snapshot."""
        return cbor.encode(msgspec.to_builtins(state, builtin_types=(bytes,)))

    def freeze_scope(self, version: int, state: State) -> bytes:
        """Give the state of a scope as bytes, with the version of the decider's own stream."""
        return cbor.encode([version, msgspec.to_builtins(state, builtin_types=(bytes,))])

    def thaw_scope(self, frozen: bytes) -> tuple[int, State]:
        """Give the version and the state that were frozen by this very version of the fold."""
        try:
            version, state = msgspec.convert(
                cbor.decode_strict(frozen, max_bytes=MOST_FROZEN), tuple[int, Any]
            )
            return version, msgspec.convert(state, self.state, builtin_types=(bytes,))
        except msgspec.ValidationError as exc:
            raise CodecError(f"a snapshot of {self.fold} cannot be read: {exc}") from exc

    def thaw(self, frozen: bytes) -> State:
        """Give the state that was frozen by this very version of the fold."""
        try:
            return msgspec.convert(
                cbor.decode_strict(frozen, max_bytes=MOST_FROZEN),
                self.state,
                builtin_types=(bytes,),
            )
        except msgspec.ValidationError as exc:
            raise CodecError(f"a snapshot of {self.fold} cannot be read: {exc}") from exc
