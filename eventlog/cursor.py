"""Cursors: a place in the log as an opaque string that any surface can carry.

Inside are a format byte, the log's generation, a position, and a check on the event there. A
restored log has a new generation, and positions alone are never believed: that is how a cursor
from elsewhere is refused where it would silently skip or repeat.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from typing import Final, NamedTuple

from perdure.eventlog.errors import InvalidCursor
from perdure.eventlog.record import Mark

GENERATION_BYTES: Final = 8
_FORMAT: Final = 1
_POSITION_BYTES: Final = 8
_CHECK_BYTES: Final = 4
_LENGTH: Final = 1 + GENERATION_BYTES + _POSITION_BYTES + _CHECK_BYTES  # 21: no padding in base64
_TEXT_LENGTH: Final = _LENGTH * 4 // 3
_MAX_POSITION: Final = (1 << 63) - 1


class Cursor(NamedTuple):
    """A parsed cursor, not yet compared with any log."""

    generation: str
    position: int
    check: bytes


def format_cursor(generation: str, mark: Mark) -> str:
    """Give the text for a place in the log of this generation."""
    return urlsafe_b64encode(
        bytes([_FORMAT])
        + bytes.fromhex(generation)
        + mark.position.to_bytes(_POSITION_BYTES, "big")
        + check_of(mark.event_id)
    ).decode("ascii")


def parse_cursor(text: str) -> Cursor:
    """Take a cursor's text apart, or raise InvalidCursor."""
    if not isinstance(text, str) or len(text) != _TEXT_LENGTH or not text.isascii():
        raise InvalidCursor("malformed")
    try:
        data = urlsafe_b64decode(text)
    except ValueError as exc:
        raise InvalidCursor("malformed") from exc
    if len(data) != _LENGTH or data[0] != _FORMAT or urlsafe_b64encode(data).decode() != text:
        raise InvalidCursor("malformed")
    split = 1 + GENERATION_BYTES
    position = int.from_bytes(data[split : split + _POSITION_BYTES], "big")
    if position > _MAX_POSITION:
        raise InvalidCursor("malformed")
    return Cursor(data[1:split].hex(), position, data[-_CHECK_BYTES:])


def check_of(event_id: bytes) -> bytes:
    """Give the few bytes that tie a cursor to the event at its position."""
    return blake2b(event_id, digest_size=_CHECK_BYTES, person=b"cursor").digest()
