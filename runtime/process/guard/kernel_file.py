"""Files of the kernel, which hold its settings as text."""

from __future__ import annotations

import os


def write(path: str, value: str) -> None:
    """Write a value into a file, if the system has this file."""
    if os.path.exists(path):
        with open(path, "w", encoding="ascii") as file:
            file.write(value)
