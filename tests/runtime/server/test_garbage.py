"""The collector of a process that serves, tried in a process of its own."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from perdure.runtime.server.garbage import THRESHOLDS, leave_alone_what_is_there

class Circle:
    def __init__(self):
        self.itself = self

leave_alone_what_is_there()
assert gc.get_freeze_count() > 1000
assert gc.get_threshold() == THRESHOLDS
assert gc.isenabled()
before = gc.get_freeze_count()
for _ in range(10):
    Circle()
assert gc.collect() >= 10
assert gc.get_freeze_count() == before
"""


def test_what_comes_later_is_still_collected() -> None:
    """Only what was there when the server was ready is left alone."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
