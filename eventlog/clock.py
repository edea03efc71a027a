"""The real clocks, for ``RealEnv`` and for short-lived programs that run no event loop."""

from __future__ import annotations

import time


def wall() -> int:
    """Wall time in UTC nanoseconds."""
    return time.time_ns()


def ticks() -> int:
    """Nanoseconds on a clock that never goes back, to measure how long something takes."""
    return time.perf_counter_ns()
