"""The beginning of a value, where all of it would be too much."""

from __future__ import annotations

from typing import Final

PREVIEW: Final = 200  # characters
_LONGEST_CHARACTER: Final = 4  # bytes in UTF-8


def preview(data: bytes) -> str:
    """Give the first characters of a text in UTF-8."""
    return data[: _LONGEST_CHARACTER * PREVIEW].decode(errors="ignore")[:PREVIEW]
