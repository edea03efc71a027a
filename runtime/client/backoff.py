"""How long to wait before each attempt to connect again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
