"""Whether two answers to a question are the same one, so that giving it twice is no conflict."""

from typing import Any


def is_same(given: Any, other: Any) -> bool:  # noqa: ANN401 - any answers
    """Compare answers as JSON does: 1 and 1.0 are one number, and true is none."""
    match given, other:
        case dict(), dict():
            both = given.keys() == other.keys()
            return both and all(is_same(given[name], other[name]) for name in given)
        case (list() | tuple(), list() | tuple()):
            return len(given) == len(other) and all(map(is_same, given, other))
        case _:
            return isinstance(given, bool) is isinstance(other, bool) and bool(given == other)
