"""Files for their owner alone: SQLite would let everybody read what it makes."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def make_private(path: Path) -> None:
    """Make an empty file that only its owner may read, if there is none.

    What belongs to a database (``-wal``, ``-shm``) gets the mode of its file. Where nothing can be
    made, whoever opens the file tells why.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
