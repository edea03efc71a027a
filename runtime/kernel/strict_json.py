"""JSON at the door, as strict as the CBOR of the log (``perdure.eventlog.cbor``), on every surface.

What one surface takes, all take: numbers that fit, text without NUL or lone surrogates, distinct
keys, nesting to 32, nothing after the value. What is refused is a CodecError that says why.

A message has so many values and no more (``cbor.MAX_VALUES``): each is looked at once here, in
Python. Commas and brackets tell of many more before they are made.

The decoder lets the last of two equal keys win. Every key has a colon of its own, so a value that
lost a key, written again, has fewer colons than there were in the bytes. Only where the count does
not tell, since a colon may be written as an escape, every object is read again.
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


def decode_message(data: bytes, *, max_bytes: int = MAX_JSON) -> cbor.Counted:
    """Decode untrusted bytes and count their values, or raise CodecError. Never hangs or grows."""
    if len(data) > max_bytes:
        raise CodecError(f"{len(data)} bytes of JSON where at most {max_bytes} are allowed")
    refuse_many_values(data)
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
    found = cbor.counted(value)
    if data.count(b":") != encode_json(value).count(b":") or b"\\u003" in data:
        _refuse_repeated_keys(data)
    return found


def refuse_many_values(data: bytes) -> None:
    """Raise CodecError if JSON has more than MAX_VALUES; it may have a few more than those.

    Every comma outside of texts has a value before it, every bracket begins one. Of escapes and
    quotes only so much is looked at as tells where texts begin and end.
    """
    if len(data) <= cbor.MAX_VALUES or _most_of(data) <= cbor.MAX_VALUES:
        return  # a value takes a byte at least
    quoted = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"', 4 * cbor.MAX_VALUES)
    strings = len(quoted) // 2  # each is a value, or the key of one
    if strings > 2 * cbor.MAX_VALUES - 1 or _most_of(b"".join(quoted[::2])) > cbor.MAX_VALUES:
        raise cbor.too_many_values()


def _most_of(data: bytes) -> int:
    return max(data.count(b",") + 1, data.count(b"[") + data.count(b"{"))


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
