"""Given a history, when a command comes, then these events follow: tests of rules, in words.

given(RUN, created, activated).when(RequestCancel(...)).then(CancelRequested(...))
given(RUN, created).when(Deliver(...)).refused(Fenced)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.actors.decider import Decider
from perdure.actors.errors import Refusal


@dataclass(frozen=True, slots=True)
class Given:
    """A history."""

    decider: Decider[Any, Any, Any]
    history: tuple[Any, ...]

    def when(self, command: object) -> When:
        """Ask for something."""
        state = self.decider.replay(self.history)
        try:
            return When(self, tuple(self.decider.decide(state, command)), None)
        except Refusal as refusal:
            return When(self, (), refusal)

    @property
    def state(self) -> Any:
        """The state that this history leads to."""
        return self.decider.replay(self.history)


@dataclass(frozen=True, slots=True)
class When:
    """What a command led to."""

    given: Given
    events: tuple[Any, ...]
    refusal: Refusal | None

    def then(self, *expected: object) -> Given:
        """Exactly these events follow; go on from there."""
        if self.refusal is not None:
            raise AssertionError(f"refused: {self.refusal!r}") from self.refusal
        if self.events != expected:
            raise AssertionError(f"expected {expected}\n     got {self.events}")
        return Given(self.given.decider, (*self.given.history, *self.events))

    def allowed(self) -> Given:
        """Whatever follows, it is not refused; go on from there."""
        return self.then(*self.events)

    def refused(self, error: type[Refusal], reason: str = "") -> None:
        """The command is refused, for this reason."""
        if not isinstance(self.refusal, error) or reason not in str(self.refusal):
            raise AssertionError(f"expected {error.__name__} ({reason}), got {self!r}")


def given(decider: Decider[Any, Any, Any], *history: object) -> Given:
    """Begin with a history."""
    return Given(decider, history)
