"""When to reach for a server again, and when to give up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perdure.eventlog.env import Env

FIRST: Final = 0.05  # seconds
LONGEST: Final = 2.0


def delays(uniform: Callable[[float, float], float]) -> Iterator[float]:
    """Give delays that double up to a bound, each with jitter: a random half of it is left out.

    So clients that lost the same server do not come back in step.
    """
    delay = FIRST
    while True:
        yield uniform(delay / 2, delay)
        delay = min(2 * delay, LONGEST)


class Backoff:
    """The attempts of one trouble: it begins with a loss and ends when the server is of use."""

    def __init__(self, env: Env, patience: float) -> None:
        """Give up after so many seconds of trouble."""
        self._env = env
        self._patience = patience
        self._delays = delays(env.random.uniform)
        self._until: float | None = None

    def begin(self) -> None:
        """Something was lost: patience counts from now, or from the loss that began the trouble."""
        if self._until is None:
            self._until = self._env.monotonic() + self._patience

    def reset(self) -> None:
        """The server was of use: the next loss is a new trouble."""
        self._until = None
        self._delays = delays(self._env.random.uniform)

    def forgive(self) -> None:
        """The server was there, if of no use yet: patience begins anew, delays stay long."""
        self._until = None

    @property
    def is_over(self) -> bool:
        """Whether the patience is at its end."""
        return self._until is not None and self._env.monotonic() >= self._until

    async def wait(self) -> None:
        """Wait before the next attempt."""
        await self._env.sleep(next(self._delays))
