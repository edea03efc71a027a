"""Which runs may have brought their host down, and when one of them is given up.

A host that is lost takes all its runs along, and the log cannot say which of them caused it, if
any did. Suspects are those that were at work and had recorded no progress since their activation;
an entry in a process of its own cannot bring the host down and is none. Each loss counts against
its suspects: in full if they are few, else so much less that a run among many is not given up
for what another did. Progress clears a run, and so does a host that has lasted for a while: it was
not the run's start that ended it. What is left is a run that brings down one host after the
other; without a limit it would do so for ever, and no other run could go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.eventlog.units import NANOSECONDS

if TYPE_CHECKING:
    from perdure.actors.run.core import Run

LIMIT: Final = 50  # losses in a row, more than kills and power cuts cause by chance
FEW: Final = 10  # suspects; among more, a loss counts FEW / suspects
_MINUTES: Final = 10
WINDOW: Final = _MINUTES * 60 * NANOSECONDS  # from the activation to when its loss is found


def is_suspect(run: Run) -> bool:
    """Tell whether a run whose host is lost may have caused that."""
    return run.active and run.is_idle


def crashes_of(run: Run, *, suspects: int, at: int) -> float:
    """Give how many losses count against a run that is found at an instant, its host lost.

    ``suspects`` is how many there are on that host, this one included; 0 if it is none.
    """
    if not suspects or not is_suspect(run):
        return run.crashes
    if at - run.activated_at > WINDOW:
        return 0.0
    return run.crashes + min(1.0, FEW / suspects)


def fault_of(crashes: float) -> str | None:
    """Say why a run is given up after so many losses, if it is."""
    if crashes < LIMIT:
        return None
    return (
        f"its host was lost {LIMIT} times in a row, each time within {_MINUTES} minutes of calling"
        " the entry and without progress of this run: the entry may bring the host down."
        " Give it a process of its own, or let it record steps or progress"
    )
