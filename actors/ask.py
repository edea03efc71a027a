"""An ask: a command on its way to an actor, and the answer on its way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

from perdure.actors.folded import Folded
from perdure.eventlog.append import StreamWrite

State = TypeVar("State")
Command = TypeVar("Command")


@dataclass(eq=False, slots=True)
class Ask(Generic[State, Command]):
    """A command, who sends it, what is to be written with it, and the answer."""

    command: Command | None  # None: just look
    principal: str | None
    also: Sequence[StreamWrite]
    new_work: bool
    answered: trio.Event | None = None  # of an ask that waits in line
    answer: Folded[State] | BaseException | None = None

    def settle(self, answer: Folded[State] | BaseException) -> None:
        """Answer, once."""
        if self.answer is None:
            self.answer = answer
            if self.answered is not None:
                self.answered.set()

    @property
    def result(self) -> Folded[State]:
        """What was answered; raises if that is an error."""
        if isinstance(self.answer, BaseException):
            raise self.answer
        assert self.answer is not None  # noqa: S101 - settled
        return self.answer
