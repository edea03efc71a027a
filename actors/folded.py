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
    snapshot: int = 0  # the version of its newest snapshot
