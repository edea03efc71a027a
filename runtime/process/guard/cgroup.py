"""Control groups: what all processes of a run may take together.

The guard makes a group in each hierarchy, inside the group that the server is in, named after the
guard's process. It removes them when the process has ended; the next server removes those whose
guard was killed.
"""

from __future__ import annotations

import os

from .kernel_file import write

PREFIX = "perdure-"

Group = tuple[str, dict[str, str]]  # a folder to make it in, and what to write into its files


def make(groups: list[Group]) -> list[int]:
    """Make the group of this process; give descriptors of the files by which another joins."""
    joining = []
    for parent, settings in groups:
        folder = f"{parent}/{PREFIX}{os.getpid()}"
        os.mkdir(folder)
        for name, value in settings.items():
            write(f"{folder}/{name}", value)
        joining.append(os.open(f"{folder}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
    return joining


def put(process: int, joining: list[int]) -> None:
    """Put a process into groups; 0 is this one. The kernel takes milliseconds for it."""
    for descriptor in joining:
        os.write(descriptor, b"%d" % process)
        os.close(descriptor)


def remove(groups: list[Group]) -> None:
    """Remove the group of this process; all that was in it has ended."""
    for parent, _ in groups:
        try:
            os.rmdir(f"{parent}/{PREFIX}{os.getpid()}")
        except OSError:
            pass
