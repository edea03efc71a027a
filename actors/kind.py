"""A kind of actor, as data: what its streams are called, its rules, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from perdure.actors.decider import Decider
from perdure.actors.folded import Folded

State = TypeVar("State")
Command = TypeVar("Command")
Event = TypeVar("Event")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[State, Command, Event]):
    """Everything the kernel needs to know about one kind of actor."""

    name: str  # its streams are called <name>/<id>
    decider: Decider[State, Command, Event]
    view: Callable[[Folded[State]], Any]  # what people and programs see of it
    tenant: Callable[[State], str]  # whose it is
    not_found: str  # the code of the error for an id that stands for nothing
    noun: str = ""  # what people call it, if not by its name

    def stream(self, actor_id: str) -> str:
        """Name the stream of an actor."""
        return f"{self.name}/{actor_id}"

    def scope(self, actor_id: str) -> str:
        """Name the scope of an actor that folds its scope: it is called as its stream."""
        return self.stream(actor_id)

    def id_of(self, stream: str) -> str | None:
        """Give the id of the actor whose stream this is, if it is of this kind."""
        kind, _, actor_id = stream.partition("/")
        return actor_id if kind == self.name else None

    @property
    def id_field(self) -> str:
        """How requests and our own log name an actor of this kind."""
        return f"{self.noun or self.name}_id"
