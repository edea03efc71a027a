"""What is wrong with a request, as data."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from perdure.runtime.kernel.invalid_value import (
    LONGEST,
    MOST,
    InvalidValue,
    invalid_request,
    invalid_values,
)


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """Something in a list."""

    number: int


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """A request of every kind of field."""

    name: Annotated[str, msgspec.Meta(max_length=3)]
    colour: Literal["red", "blue"] | None = None
    parts: list[Part] = []
    several: list[Literal["a", "b"]] | None = None
    numbers: dict[str, int] = {}


@pytest.mark.parametrize(
    ("args", "path", "expected", "got"),
    [
        ({}, "name", "a value", "nothing"),
        ({"name": 1}, "name", "str", "int"),
        ({"name": "long"}, "name", "str of length <= 3", None),
        ({"name": "x", "colour": "green"}, "colour", "one of blue, red", None),
        ({"name": "x", "several": ["a", "c"]}, "several[...]", "one of a, b", None),
        ({"name": "x", "parts": [{"number": "1"}]}, "parts[0].number", "int", "str"),
        ({"name": "x", "parts": [{}]}, "parts[0].number", "a value", "nothing"),
        ({"name": "x", "parts": [{"number": 1, "y": 1}]}, "parts[0]", "only names", None),
        ({"name": "x", "numbers": {"a": None}}, "numbers[...]", "int", "null"),
        ({"name": "x", "size": 1}, "size", "one of the names colour, name", None),
    ],
)
def test_each_value_is_named_with_what_was_expected(
    args: dict[str, Any], path: str, expected: str, got: str | None
) -> None:
    """By its path; of what was found only the type is told."""
    (found,) = invalid_values(args, Wanted)
    assert found["expected"].startswith(expected)
    assert (found["path"].replace("[1]", "[...]"), found["got"]) == (path, got)


def test_all_that_is_wrong_is_named_within_bounds() -> None:
    """The message tells the first few, the details more; neither grows with the request."""
    args = {"name": 1, "colour": "green", **{f"{n}{'x' * 1000}": n for n in range(100)}}
    found = invalid_values(args, Wanted, "args.")
    assert len(found) == MOST
    assert all(len(each["path"]) <= LONGEST for each in found)
    error = invalid_request("", found)
    assert "and 17 more" in error.message
    assert len(error.message) < 2000
    told: list[InvalidValue] = invalid_values({"name": 1, "colour": 2}, Wanted, "args.")
    assert [each["path"] for each in told] == ["args.name", "args.colour"]
