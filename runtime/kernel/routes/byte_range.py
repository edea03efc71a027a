"""Ranges of bytes as HTTP asks for them (RFC 9110, section 14): one at most.

A header that cannot be read, or that names several ranges, is passed over, as the RFC allows: the
answer is the whole.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from perdure.runtime.kernel.errors import OperationError

_RANGE: Final = re.compile(r"bytes=\s*([0-9]*)-([0-9]*)\s*", re.IGNORECASE)
_DIGITS: Final = 18  # no blob has a place whose number is longer


class Span(NamedTuple):
    """Some bytes of so many."""

    start: int
    length: int
    size: int

    @property
    def content_range(self) -> bytes:
        """The header that says which bytes these are."""
        return b"bytes %d-%d/%d" % (self.start, self.start + self.length - 1, self.size)


def asked_span(asked: str | None, if_range: str | None, etag: str, size: int) -> Span | None:
    """Give the span that a request asks for, or None for all; raise if there is no such span."""
    found = None if asked is None else _RANGE.fullmatch(asked)
    if found is None or (if_range is not None and if_range.strip() != etag):
        return None
    first, last = found.groups()
    if not first:
        if not last:
            return None
        return _span(size - min(_number(last), size), size, size)
    if last and _number(last) < _number(first):
        return None
    return _span(_number(first), _number(last) + 1 if last else size, size)


def _number(digits: str) -> int:
    """Read a number; one that is too long to be a place is beyond all of them."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= _DIGITS else 10**_DIGITS


def _span(start: int, end: int, size: int) -> Span:
    end = min(end, size)
    if start >= end:
        raise OperationError("INVALID_RANGE", f"the blob has {size} bytes", size=size)
    return Span(start, end - start, size)


def has_etag(if_none_match: str | None, etag: str) -> bool:
    """Tell whether somebody has it already."""
    if if_none_match is None:
        return False
    known = {each.strip().removeprefix("W/") for each in if_none_match.split(",")}
    return etag in known or known == {"*"}
