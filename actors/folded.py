"""A state and the place in the log up to which it was folded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from perdure.eventlog.record import Mark

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Folded(Generic[State]):
    """What an actor knows, and up to where it knows it."""

    state: State
    version: int  # of its stream
    mark: Mark  # the newest record folded
    commit_time: int  # of that record
    scope: str
    snapshot: int = 0  # the version, or of a scope the position, of its newest snapshot
    weight: int = 0  # of a scope: the bytes of the records folded since then
    snapshot_weight: int = 0  # of a scope: the bytes that the state had then
