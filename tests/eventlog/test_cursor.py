from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.eventlog.cursor import check_of, format_cursor, parse_cursor
from perdure.eventlog.errors import InvalidCursor
from perdure.eventlog.record import START, Mark
from tests.fuzz import examples

GENERATION = "0123456789abcdef"


@given(st.integers(0, (1 << 63) - 1), st.binary(min_size=16, max_size=16))
def test_a_cursor_carries_generation_position_and_check(position: int, event_id: bytes) -> None:
    """What goes into a cursor's text comes out of it."""
    text = format_cursor(GENERATION, Mark(position, event_id))
    assert parse_cursor(text) == (GENERATION, position, check_of(event_id))
    assert text.isascii()
    assert len(text) == 28


def test_an_empty_log_has_a_cursor() -> None:
    """The start is a place like any other."""
    assert parse_cursor(format_cursor(GENERATION, START)) == (GENERATION, 0, check_of(b""))


@examples()
@given(st.text(max_size=40) | st.text("ABCwxyz0189-_=", min_size=28, max_size=28))
@example("")
@example("0")
@example("-1")
@example("cursor_147")
@example("A" * 28)
@example("_" * 28)
@example("Á" * 28)
def test_any_text_is_a_cursor_or_refused(text: str) -> None:
    """Parsing never fails in another way, and one place has one text."""
    try:
        cursor = parse_cursor(text)
    except InvalidCursor:
        return
    assert cursor.position >= 0
    assert len(cursor.generation) == 16


def test_a_cursor_has_one_spelling() -> None:
    """Another alphabet, padding or case is malformed, not the same cursor."""
    text = format_cursor("ffffffffffffffff", Mark(1 << 62, b"x" * 16))
    for other in (text.replace("_", "/"), text[:-1] + "=", text + "=", f" {text}", text.lower()):
        if other != text:
            with pytest.raises(InvalidCursor, match="malformed"):
                parse_cursor(other)
