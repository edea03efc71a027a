"""Moments as people and addresses write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.runtime.kernel.instants import (
    NotAnInstant,
    cursor_or_instant,
    instant_at,
    with_local_zone,
)

SECOND = 1_000_000_000
CURSOR = "AQEjRWeJq83vAAAAAAAAAAWOfKbp"


@pytest.mark.parametrize(
    ("text", "begin", "length"),
    [
        ("0", 0, 1000),
        ("1785585600", 1785585600 * SECOND, 1000),
        ("1785585600.000001", 1785585600 * SECOND + 1000, 1000),
        ("1785585600.0000019", 1785585600 * SECOND + 1000, 1000),
        ("-1.5", -1_500_000_000, 1000),
        ("1785585600000000001", 1785585600 * SECOND + 1, 1),
        ("10000000000000000", 10**16, 1),
        ("1e9", 10**9 * SECOND, 1000),
        ("2026-08-01T12:00:00Z", 1785585600 * SECOND, 1000),
        ("2026-08-01T14:00:00.25+02:00", 1785585600 * SECOND + SECOND // 4, 1000),
        ("2026-08-01T12:00:00", 1785585600 * SECOND, 1000),
        ("2026-08-01", 1785542400 * SECOND, 1000),
    ],
)
def test_a_number_and_a_time_are_instants(text: str, begin: int, length: int) -> None:
    """Seconds, nanoseconds from 10**16 on, ISO 8601 in UTC; a place is the end of what is named."""
    assert instant_at(text) == begin
    assert cursor_or_instant(text) == begin + length - 1


def test_a_time_without_an_offset_is_one_of_the_zone() -> None:
    """UTC for programs; a terminal has a zone of its own."""
    there = timezone(timedelta(hours=2))
    assert instant_at("2026-08-01T14:00:00", there) == instant_at("2026-08-01T12:00:00Z")
    local = datetime(2026, 8, 1, 14).astimezone().timestamp()
    assert instant_at("2026-08-01T14:00:00", None) == int(local) * SECOND


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1785585600, "1785585600"),
        (1785585600.5, "1785585600.5"),
        (1785585600.0, "1785585600"),
        (1785585600000000001, "1785585600000000001"),
        (1e18, "1000000000000000000"),
        (-1, "-1"),
        (1e300, "1e300"),
    ],
)
def test_a_number_means_what_its_digits_mean(number: float, text: str) -> None:
    """Whether JSON has it as a number or an address as text."""
    assert instant_at(number) == instant_at(text)
    assert cursor_or_instant(number) == cursor_or_instant(text)


@pytest.mark.parametrize("value", [True, None, [1], {}, b"1", float("nan"), ["A" * 24]])
def test_what_is_neither_a_number_nor_a_text_is_no_moment(value: object) -> None:
    """Nothing is guessed."""
    for read in (cursor_or_instant, instant_at):
        with pytest.raises(NotAnInstant):
            read(value)


@pytest.mark.parametrize("text", ["5", "20260801", CURSOR, "yesterday", "2026-08-01T12:00:00Z"])
def test_only_a_bare_time_is_given_a_zone(text: str) -> None:
    """A terminal has a zone of its own; what is meant is the same everywhere afterwards."""
    assert with_local_zone(text) == text
    bare = "2026-08-01T12:00:00"
    assert instant_at(with_local_zone(bare)) == instant_at(bare, None)


def test_a_cursor_is_a_cursor() -> None:
    """And no instant."""
    assert cursor_or_instant(CURSOR) == CURSOR
    with pytest.raises(NotAnInstant):
        instant_at(CURSOR)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "12:00",
        "nan",
        "inf",
        "9" * 70,
        "9" * 100_000,
    ],
    ids=range(7),
)
def test_anything_else_is_refused(text: str) -> None:
    """However long it is."""
    with pytest.raises(NotAnInstant, match="Try"):
        cursor_or_instant(text)


def test_what_is_far_away_is_before_or_after_everything() -> None:
    """People write so when they mean no end; 64 bits need not hold it."""
    late = ["9999-12-31", "1e30", "1e999999999", "9" * 60, "10000000000000000.5", "1e15"]
    assert {instant_at(text) for text in late} == {(1 << 63) - 1001}
    early = ["0001-01-01T00:00:00+14:00", "-1e30", "-1e999999999"]
    assert {instant_at(text) for text in early} == {1001 - (1 << 63)}


@given(st.text(max_size=70))
def test_no_text_breaks_it(text: str) -> None:
    """A moment that 64 bits hold, a cursor, or a refusal."""
    try:
        place = cursor_or_instant(text)
    except NotAnInstant:
        return
    assert isinstance(place, str) or abs(place) < 1 << 63


@given(st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)))  # noqa: DTZ001 - a zone is added
def test_a_time_is_the_same_in_every_form(then: datetime) -> None:
    """ISO 8601, seconds and nanoseconds name the same instant."""
    then = then.replace(tzinfo=UTC)
    nanoseconds = (then - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    assert instant_at(then.isoformat()) == nanoseconds
    if abs(nanoseconds) >= 10**16:
        assert instant_at(str(nanoseconds)) == nanoseconds
