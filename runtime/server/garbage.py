"""The garbage collector of a process that serves.

Reference counts free nearly everything; the collector looks for what is left in circles. It stops
everybody while it looks, and by default it looks often, and now and then at all that was ever
loaded: tens of milliseconds in which nobody is answered. What is there when a server is ready stays
until its end, so that is not looked at again; the rest is looked at less often.
"""

from __future__ import annotations

import gc
from typing import Final

# Python's own are 700, 10, 10. A round looks at what came since the last one, and every fourth also
# at what survived some rounds: a few milliseconds each, together 3% of a busy server's time.
THRESHOLDS: Final = (5_000, 3, 20)


def leave_alone_what_is_there() -> None:
    """Say that what is there now stays. For the process as a whole, once it is ready."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
