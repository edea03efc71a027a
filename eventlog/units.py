"""The unit of time: everything that is stored counts nanoseconds."""

from typing import Final

NANOSECONDS: Final = 1_000_000_000  # in a second
