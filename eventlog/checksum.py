"""Checksums: four bytes behind a record's values that tell when a disk has changed one of them.

What is covered is every value that a reader can see, in the order of the columns, as MessagePack:
its lengths and types keep two different records from giving the same bytes. The checksum is their
CRC-32. A message followed by its own CRC-32 always leaves the same CRC-32 behind; each checksum
begins with that number. So rows are checked as they are, several in one call: whatever number of
sound ones follow each other, the number stays (``docs/adr/0019-checksums.md``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_ONCE: Final = 60  # rows
_SOUND: Final = 0x2144DF1C  # the CRC-32 of anything that is followed by its own CRC-32
_BYTES: Final = 4
_LONG_ARRAY: Final = 16  # rows; its header has the number in two more bytes
_TO_COME: Final = bytes(_BYTES)
_encoded: Final = msgspec.msgpack.Encoder(enc_hook=bytes).encode  # the hook: subclasses of bytes


def append_to(values: Sequence[object]) -> tuple[Any, ...]:
    """Give values with their checksum as the last one."""
    covered = memoryview(_encoded((*values, _TO_COME)))[:-_BYTES]
    return (*values, crc32(covered, _SOUND).to_bytes(_BYTES, "little"))


def is_sound(values: Sequence[object]) -> bool:
    """Tell whether values are those that their checksum, the last one, was made of."""
    return crc32(_encoded(values), _SOUND) == _SOUND


def sound_size(rows: Sequence[Sequence[object]]) -> int:
    """Give the bytes of rows, at most AT_ONCE, if all are sound, and 0 if one is not."""
    data = _encoded(rows)
    header = 1 if len(rows) < _LONG_ARRAY else 3
    return len(data) if crc32(memoryview(data)[header:], _SOUND) == _SOUND else 0
