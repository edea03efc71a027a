"""The first step of a process: its descriptors get low numbers, then it becomes its guard.

Any shell can name descriptors of one digit, and a plain one (POSIX ``sh``) no others. The server
cannot give them out as such: its own low ones are taken. So it starts this file as a program, with
the descriptors that a process gets and the command that goes on with them. It imports no more than
it needs.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal takes longer than all of this
import os
import sys
from fcntl import F_DUPFD_CLOEXEC, fcntl

READ = 3
WRITE = 4
GUARD = 5  # what the guard reads; it keeps it to itself


def lower(given: list[int]) -> None:
    """Give descriptors the numbers from 3 on, in place of those they had."""
    copies = [fcntl(fd, F_DUPFD_CLOEXEC, 10) for fd in given]  # out of each other's way
    for fd in given:
        os.close(fd)
    for low, copy in enumerate(copies, READ):
        os.dup2(copy, low)


def main() -> None:
    """Lower descriptors (the first argument, with commas) and become a command (the others)."""
    lower([int(fd) for fd in sys.argv[1].split(",")])
    for ignored in (_signal.SIGPIPE, _signal.SIGXFSZ):  # by Python; what comes after it would too
        _signal.signal(ignored, _signal.SIG_DFL)
    os.environ.pop("LC_CTYPE", None)  # Python sets it where nobody has said which language
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - a command needs no shell to become one


if __name__ == "__main__":
    main()
