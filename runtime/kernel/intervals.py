"""Intervals of positions, kept so that those which contain a position are found by equality.

An interval ``[begins, ends)`` that is at least 2^k long, and less than twice that, belongs to one
cell: the block of 2^k positions in which it begins. Those that contain a position lie in at most
three cells of each size. What else lies in these cells was open shortly before: the cost of a
query is that of what is, or was just, open, and never that of the whole past.
"""

from __future__ import annotations

from typing import Final

_SIZES: Final = 6  # bits that say how large a cell is
_LARGEST: Final = 62  # what SQLite can count to
_REACH: Final = 3  # cells: an interval is shorter than two of them, and begins anywhere in one


def cell(begins: int, ends: int) -> int:
    """Give the cell of an interval."""
    size = (ends - begins).bit_length() - 1
    return begins >> size << _SIZES | size


def cells_around(position: int) -> list[int]:
    """Give the cells of all intervals that contain a position."""
    return [
        (block - back) << _SIZES | size
        for size in range(_LARGEST + 1)
        for back in range(_REACH)
        if (block := position >> size) >= back
    ]
