"""A directory in which nothing can be written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Let nothing be written to a directory for the length of a block.

    Root may write in spite of a mode, so for root the directory is mounted read-only.
    """
    if os.geteuid():
        mode = path.stat().st_mode
        path.chmod(0o500)
        try:
            yield
        finally:
            path.chmod(mode)
        return
    bind = ["mount", "--bind", str(path), str(path)]
    if subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("root may not mount anything here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
