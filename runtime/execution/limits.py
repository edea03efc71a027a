"""The limits of a host: how much runs at once, and how long things may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from perdure.actors.run.escalation import harder_at
from perdure.eventlog.units import NANOSECONDS
from perdure.runtime.kernel.live_actors import IDLE
from perdure.runtime.plugins.plugin import LONGEST

if TYPE_CHECKING:
    from perdure.actors.run.status import CancelMode

CANCEL_GRACE: Final = 5.0  # seconds an entry gets to obey, and again after being interrupted
SYNC_WAIT: Final = 30.0  # seconds that a caller who wants to wait for the end may wait
DEFAULT_LIMIT: Final = 1000  # runs at once, on the whole host
ALIVE: Final = 10  # times as many may be alive, if the others wait in a sleep or for an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """How much runs at once, and how long things may take, in seconds."""

    runs: int = DEFAULT_LIMIT
    cancel_grace: float = CANCEL_GRACE
    sync_wait: float = SYNC_WAIT
    idle: float = IDLE  # after which an actor that nobody asks is let go
    timeout: float | None = None  # the longest that any run may ask for
    progress_items: bool = False  # whether progress is exported as well, for people who read along
    inline_limit: int = 64 << 10  # bytes that an item may hold itself; more become a blob

    def timeout_of(self, asked: float | None) -> float | None:
        """Give the time that a run may take: what was asked for, up to what is allowed."""
        longest = LONGEST if self.timeout is None else self.timeout
        return self.timeout if asked is None else min(asked, longest)

    @property
    def grace(self) -> int:
        """Give how long an entry gets to obey, in nanoseconds."""
        return round(self.cancel_grace * NANOSECONDS)

    def harder_at(self, mode: CancelMode, at: int) -> int:
        """Give when a harder way follows on a cancel request that is made at an instant."""
        return harder_at(mode, at, self.grace)
