"""JSON at the door, as strict as the CBOR of the log (``perdure.eventlog.cbor``), on every surface.

What one surface takes, all take: numbers that fit, text without NUL or lone surrogates, distinct
keys, nesting to 32, nothing after the value. What is refused is a CodecError that says why.

The decoder lets the last of two equal keys win. Every key has a colon of its own, so a value that
lost a key has fewer keys, and colons in its texts, than there were colons in the bytes. Only where
the count does not tell, since a colon may be written as an escape, every object is read again.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError

MAX_JSON: Final = 1 << 20  # bytes, unless a setting says otherwise; a record holds as many
JSON: Final = "application/json"

# A first half that no second one follows; the backslash before it is not one that is escaped.
_LONE_SURROGATE: Final = re.compile(
    rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
)

_encoder: Final = msgspec.json.Encoder()
encode_json = _encoder.encode  # bytes leave as base64


def decode_json(data: bytes, *, max_bytes: int = MAX_JSON) -> Any:  # noqa: ANN401 - any JSON value
    """Decode untrusted bytes, or raise CodecError. Never hangs, never grows."""
    if len(data) > max_bytes:
        raise CodecError(f"{len(data)} bytes of JSON where at most {max_bytes} are allowed")
    try:
        value = msgspec.json.decode(data)
    except RecursionError:
        raise CodecError(f"the JSON has more than {cbor.MAX_DEPTH} levels") from None
    except ValueError as error:  # all that the decoder raises, and text that is not UTF-8
        if _LONE_SURROGATE.search(data):
            raise CodecError(
                "this is not JSON: half of a surrogate pair is no Unicode text"
            ) from None
        raise CodecError(f"this is not JSON: {error}") from None
    cbor.check(value)
    if data.count(b":") != _colons(value) or b"\\u003" in data:
        _refuse_repeated_keys(data)
    return value


def _colons(value: Any) -> int:  # noqa: ANN401 - any JSON value
    """Count the colons that a value needs: one for each key, and those in its texts."""
    kind = type(value)
    if kind is str:
        return value.count(":")  # type: ignore[no-any-return]
    if kind is dict:
        count = len(value)
        for key, item in value.items():
            count += key.count(":")
            if type(item) in _WITH_COLONS:
                count += _colons(item)
        return count
    if kind is list:
        return sum(_colons(item) for item in value if type(item) in _WITH_COLONS)
    return 0


_WITH_COLONS: Final = frozenset({str, dict, list})


def _refuse_repeated_keys(data: bytes) -> None:
    json.loads(data, object_pairs_hook=_distinct)


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    """Refuse an object with two equal keys. What it holds does not matter here."""
    if len(pairs) == len({key for key, _ in pairs}):
        return
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise CodecError(f"the key {key!r} is there twice")
        seen.add(key)
