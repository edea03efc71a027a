"""A folder to write into, for a process that can have no tree of files of its own."""

from __future__ import annotations

import os

PREFIX = "perdure-scratch-"


class Scratch:
    """A folder on disk, named after its guard; what killed guards have left is removed."""

    def __init__(self) -> None:
        """Make it, for its owner alone."""
        top = os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - the name in it is our own
        for name in os.listdir(top):
            if name.startswith(PREFIX) and not os.path.exists(f"/proc/{name[len(PREFIX) :]}"):
                _remove(f"{top}/{name}")
        self.folder = f"{top}/{PREFIX}{os.getpid()}"
        os.mkdir(self.folder, 0o700)

    def remove(self) -> None:
        """Remove it with all that is in it."""
        _remove(self.folder)


def _remove(folder: str) -> None:
    from shutil import rmtree  # it takes long to import, and here nobody waits

    rmtree(folder, ignore_errors=True)
