"""Moments as people and programs write them: one rule for every surface.

A number, or a text that is one, is epoch seconds; a whole number from 10**16 on is epoch
nanoseconds. ISO 8601 is ISO 8601. Any other text is a cursor. Times are shown to the microsecond,
so a moment means all of the microsecond that it names.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import tzinfo

CURSOR_LENGTH: Final = 28
NANOSECONDS_FROM: Final = 10**16
_MICROSECOND: Final = 1000
_DIGITS: Final = 19  # of nanoseconds in 64 bits
_FARTHEST: Final = (1 << 63) - 1 - _MICROSECOND
_LONGEST: Final = 64  # characters of an instant
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class NotAnInstant(ValueError):
    """Something is no cursor, no ISO 8601 time and no number of epoch seconds."""

    def __init__(self, value: object) -> None:
        """Say what would be one."""
        shown = repr(value)
        if len(shown) > CURSOR_LENGTH * 2:
            shown = shown[: CURSOR_LENGTH * 2] + "..."
        super().__init__(
            f"{shown} is no cursor, no ISO 8601 time and no epoch seconds. Try 2026-08-01T12:00:00Z"
        )


def cursor_or_instant(value: object, zone: tzinfo | None = UTC) -> str | int:
    """Give the cursor that a text is, or the end of the instant it names in UTC nanoseconds."""
    text = _text(value)
    found = _nanoseconds(text, zone)
    if found is not None:
        begin, length = found
        return begin + length - 1
    if len(text) != CURSOR_LENGTH:
        raise NotAnInstant(value)
    return text


def instant_at(value: object, zone: tzinfo | None = UTC) -> int:
    """Give the beginning of the instant that a number or a text names, in UTC nanoseconds.

    Without an offset a time is one of ``zone``; of this machine's, if that is None.
    """
    found = _nanoseconds(_text(value), zone)
    if found is None:
        raise NotAnInstant(value)
    return found[0]


def with_local_zone(text: str) -> str:
    """Give a moment in words that mean the same everywhere: a bare time is one of this machine."""
    if _number(text) is not None:
        return text
    try:
        then = datetime.fromisoformat(text)
        return text if then.tzinfo is not None else then.astimezone().isoformat()
    except (ValueError, OverflowError):
        return text


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if type(value) not in {int, float}:  # true is no number here
        raise NotAnInstant(value)
    return str(value)


def _nanoseconds(text: str, zone: tzinfo | None) -> tuple[int, int] | None:
    """Give the begin and the length of an instant, if the text is one."""
    if len(text) > _LONGEST:
        return None
    number = _number(text)
    if number is not None:
        return _of_number(number)
    try:
        then = datetime.fromisoformat(text)
        if then.tzinfo is None:
            then = then.astimezone() if zone is None else then.replace(tzinfo=zone)
        since = then - _EPOCH
    except (ValueError, OverflowError):
        return None
    microseconds = (since.days * 86400 + since.seconds) * 10**6 + since.microseconds
    return _near(microseconds * _MICROSECOND), _MICROSECOND


def _number(text: str) -> Decimal | None:
    with suppress(InvalidOperation):
        number = Decimal(text)
        if number.is_finite():
            return number
    return None


def _of_number(number: Decimal) -> tuple[int, int]:
    if number.adjusted() > _DIGITS:
        return _FARTHEST if number > 0 else -_FARTHEST, 1
    is_whole = number == number.to_integral_value()
    if is_whole and abs(number) >= NANOSECONDS_FROM:
        return _near(int(number)), 1
    microseconds = int((number * 10**6).to_integral_value("ROUND_FLOOR"))
    return _near(microseconds * _MICROSECOND), _MICROSECOND


def _near(nanoseconds: int) -> int:
    """Give an instant that 64 bits hold: what is farther away is before or after everything."""
    return max(-_FARTHEST, min(nanoseconds, _FARTHEST))
