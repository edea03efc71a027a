"""CBOR, as narrow as JSON plus byte strings.

The profile, the same for everything that enters the log: null, booleans, integers of 64 bits,
finite floats, text without NUL or lone surrogates, byte strings, arrays, and maps with distinct
text keys; definite lengths, no semantic tags, nesting to 32, and nothing after the value.
Everything else (tag bombs, regular expressions, shared references, NaN, ...) is refused.

``decode_strict`` reads bytes of strangers, ``decode_message`` those of a peer that may send so many
values and no more. ``decode`` reads bytes that ``encode`` once wrote.
"""

from collections.abc import Callable
from io import BytesIO
from math import isfinite
from typing import Any, Final, NamedTuple, NoReturn

import cbor2

from perdure.eventlog.errors import CodecError

MAX_DEPTH: Final = 32
MAX_VALUES: Final = 20_000  # of a message of a peer: each is looked at, and takes some memory
_MIN_INT: Final = -(1 << 63)
_MAX_INT: Final = (1 << 63) - 1
_STRINGS: Final = frozenset({2, 3})  # kinds of items (RFC 8949 calls them major types)
_ARGUMENT_BYTES: Final = {24: 1, 25: 2, 26: 4, 27: 8}  # of an argument that follows its head

# What callers store and get back: the static type of a decoded value cannot be narrower.
Value = Any

decode: Callable[[bytes], Value] = cbor2.loads
DecodeError = cbor2.CBORDecodeError  # what it raises on bytes that nobody has encoded


def encode(value: Value) -> bytes:
    """Encode a value of the profile; anything outside it is a CodecError that names the place."""
    _check(value, "value", 0)
    return cbor2.dumps(value)


def decode_strict(data: bytes, *, max_bytes: int = 1 << 20) -> Value:
    """Decode untrusted bytes, or raise CodecError. Never hangs, never grows."""
    value = _decoded(data, max_bytes)
    _check(value, "value", 0)
    return value


def _decoded(data: bytes, max_bytes: int) -> Value:
    if len(data) > max_bytes:
        raise CodecError(f"{len(data)} bytes of CBOR where at most {max_bytes} are allowed")
    source = BytesIO(data)
    try:
        decoder = cbor2.CBORDecoder(
            source,
            tag_hook=_refuse_tag,
            semantic_decoders=_EVERY_KNOWN_TAG_REFUSED,
            max_depth=MAX_DEPTH,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            strict_hashable_types=True,
            read_size=1,  # so that the source's place tells what was consumed
        )
        value = decoder.decode()
    except (cbor2.CBORDecodeError, ValueError, OverflowError, MemoryError, RecursionError) as exc:
        raise CodecError(f"not CBOR of our profile: {exc}") from exc
    if source.tell() != len(data):
        raise CodecError(f"{len(data) - source.tell()} bytes follow the CBOR value")
    return value


class Counted(NamedTuple):
    """A value, and of how many values it consists: itself, and all that it contains."""

    value: Value
    values: int


def decode_message(data: bytes, *, max_bytes: int = 1 << 20) -> Counted:
    """Decode a message of MAX_VALUES at most. Many more are refused before they are made."""
    if len(data) > MAX_VALUES and _heads(data, 2 * MAX_VALUES + 1) > 2 * MAX_VALUES:
        raise too_many_values()  # each value has a head, and at most one key that has another
    return counted(_decoded(data, max_bytes))


def counted(value: Value) -> Counted:
    """Check a value that came in a message."""
    count = _check(value, "value", 0)
    if count > MAX_VALUES:
        raise too_many_values()
    return Counted(value, count)


def too_many_values() -> CodecError:
    """Say that a message consists of too many values."""
    return CodecError(
        f"a message may consist of {MAX_VALUES:,} values; send several, or many values as one text"
    )


def _heads(data: bytes, most: int) -> int:
    """Count the heads of items, up to so many, without making the items."""
    at = count = 0
    while at < len(data) and count < most:
        kind, argument = divmod(data[at], 32)
        size = _ARGUMENT_BYTES.get(argument, 0)
        if kind in _STRINGS:
            at += int.from_bytes(data[at + 1 : at + 1 + size], "big") if size else argument
        at += 1 + size
        count += 1
    return count


def check(value: Value) -> int:
    """Raise CodecError unless the value fits the profile; give of how many values it consists."""
    return _check(value, "value", 0)


def _check(value: Value, place: str, depth: int) -> int:
    kind = type(value)
    if kind is str:
        if not value.isascii() or "\0" in value:
            _check_text(value, place)
    elif kind is int:
        if not _MIN_INT <= value <= _MAX_INT:
            _refuse(place, "an integer of more than 64 bits")
    elif kind is float:
        if not isfinite(value):
            _refuse(place, "a float that is not finite")
    elif kind is dict or kind is list or kind is tuple:
        if depth >= MAX_DEPTH:
            _refuse(place, f"more than {MAX_DEPTH} levels")
        return 1 + _check_items(value, place, depth + 1)
    elif not (value is None or kind is bool or kind is bytes):
        _refuse(place, f"a {kind.__name__}, which has no place in the log")
    return 1


def _check_items(value: Value, place: str, depth: int) -> int:
    count = len(value)
    if type(value) is not dict:
        for item in value:
            count += _check(item, place, depth) - 1
        return count
    for key, item in value.items():
        if type(key) is not str:
            _refuse(place, f"a map key of type {type(key).__name__}")
        if not key.isascii() or "\0" in key:
            _check_text(key, place)
        if item is None or item is True or item is False:
            continue
        if type(item) is str and item.isascii() and "\0" not in item:
            continue
        count += _check(item, key, depth) - 1
    return count


def _check_text(text: str, place: str) -> None:
    if "\0" in text:
        _refuse(place, "text with a NUL character")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            _refuse(place, "text with a lone surrogate")


def _refuse(place: str, what: str) -> NoReturn:
    raise CodecError(f"{place} holds {what}")


def _refuse_tag(_tagged: object, _immutable: bool, /) -> NoReturn:  # noqa: FBT001 - cbor2 calls it
    raise CodecError("semantic tags are not allowed")


# The decoder knows some tags by heart and asks its tag hook only for the others, so those are
# overridden one by one: all the low ones, and the few high ones that it implements.
_EVERY_KNOWN_TAG_REFUSED: Final = dict.fromkeys([*range(300), 1004, 43000, 55799], _refuse_tag)
