"""Invalid values: what is wrong with a request, as data (``details.errors`` of VALIDATION_ERROR).

Each names the path of a value, what was expected there and what kind of value was found; never the
value itself, which may be a secret.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypedDict

import msgspec

from perdure.runtime.kernel.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MOST: Final = 20  # invalid values that are named
TOLD: Final = 3  # of those, in the message
LONGEST: Final = 200  # characters of a path, and of what was expected
_AT: Final = re.compile(r" - at `(?:key in )?\$(.*)`$")
_EXPECTED: Final = re.compile(r"Expected (.+?)(?:, got `(\w+)`)?")
_NO_FIELD: Final = re.compile(r"Object missing required field `(.+)`")
_UNKNOWN_FIELD: Final = re.compile(r"Object contains unknown field `(.+)`")


class InvalidValue(TypedDict):
    """A value of a request that cannot be taken."""

    path: str  # "args.to"
    expected: str
    got: str | None  # a type


def invalid(
    message: str,
    path: str,
    expected: str,
    got: str | None = None,
    **details: Any,
) -> OperationError:
    """Give the error for one value, in words of its own."""
    value = _value(path, expected, got)
    return OperationError("VALIDATION_ERROR", message, errors=[value], **details)


def invalid_request(about: str, values: Sequence[InvalidValue]) -> OperationError:
    """Give the error for some values; its message tells the first of them."""
    told = [_told(value) for value in values[:TOLD]]
    if len(values) > TOLD:
        told.append(f"and {len(values) - TOLD} more")
    return OperationError("VALIDATION_ERROR", about + "; ".join(told), errors=list(values))


def invalid_values(
    args: Mapping[str, Any],
    wanted: type[msgspec.Struct],
    at: str = "",
    *,
    builtin_types: tuple[type, ...] = (),
    hide: Callable[[str], str] = str,
) -> list[InvalidValue]:
    """Find what is wrong with arguments, each by itself; ``at`` is the path that leads to them.

    ``hide`` takes secrets out of names that a client has made up.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(wanted)}
    found = []
    if wanted.__struct_config__.forbid_unknown_fields:
        known = f"one of the names {', '.join(sorted(fields))}" if fields else "no names"
        unknown = islice((str(name) for name in args if name not in fields), MOST)
        found = [_value(f"{at}{hide(name)}", known) for name in unknown]
    for name, field in fields.items():
        if name in args:
            found.extend(_in_field(f"{at}{name}", args[name], field.type, builtin_types))
        elif field.required:
            found.append(_value(f"{at}{name}", "a value", "nothing"))
    return found[:MOST]


def _in_field(
    path: str,
    value: object,
    wanted: Any,  # noqa: ANN401 - a type
    builtin_types: tuple[type, ...],
) -> Iterator[InvalidValue]:
    try:
        msgspec.convert(value, wanted, builtin_types=builtin_types)
    except msgspec.ValidationError as error:
        text = str(error)
        inside = _AT.search(text)
        yield _read(path + (inside[1] if inside else ""), _AT.sub("", text), wanted)


def _read(path: str, text: str, wanted: Any) -> InvalidValue:  # noqa: ANN401 - a type
    """Read the message that msgspec has for one value."""
    if found := _EXPECTED.fullmatch(text):
        return _value(path, found[1].replace("`", ""), found[2])
    if found := _NO_FIELD.fullmatch(text):
        return _value(f"{path}.{found[1]}", "a value", "nothing")
    if _UNKNOWN_FIELD.fullmatch(text):
        return _value(path, "only names that are known")
    return _value(path, _options(wanted) or "another value")


def _options(wanted: Any) -> str:  # noqa: ANN401 - a type
    """Name the values that a type allows, if it lists them."""
    with suppress(TypeError):
        schema = msgspec.json.schema(wanted)
        parts = [schema, schema.get("items", {}), *schema.get("anyOf", ())]
        parts += [part.get("items", {}) for part in parts]
        for part in parts:
            if "enum" in part:
                return f"one of {', '.join(map(str, part['enum']))}"
    return ""


def _value(path: str, expected: str, got: str | None = None) -> InvalidValue:
    return {"path": path[:LONGEST], "expected": expected[:LONGEST], "got": got}


def _told(value: InvalidValue) -> str:
    got = "" if value["got"] is None else f", got {value['got']}"
    return f"{value['path']}: expected {value['expected']}{got}"
