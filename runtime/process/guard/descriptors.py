"""The descriptors of a process get low numbers.

Any shell can name descriptors of one digit, and a plain one (POSIX ``sh``) no others. The server
cannot give them out as such: its own low ones are taken.
"""

from __future__ import annotations

import os
from fcntl import F_DUPFD_CLOEXEC, fcntl

READ = 3
WRITE = 4
CONTROL = 5  # to the server; the guard keeps it to itself


def lower(given: list[int]) -> None:
    """Give descriptors the numbers from 3 on, in place of those they had."""
    copies = [fcntl(fd, F_DUPFD_CLOEXEC, 10) for fd in given]  # out of each other's way
    for fd in set(given):
        os.close(fd)
    for low, copy in enumerate(copies, READ):
        os.dup2(copy, low)
        os.close(copy)
