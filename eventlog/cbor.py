"""CBOR, as narrow as JSON plus byte strings.

The profile, the same for everything that enters the log: null, booleans, integers of 64 bits,
finite floats, text without NUL or lone surrogates, byte strings, arrays, and maps with distinct
text keys; definite lengths, no semantic tags, nesting to 32, and nothing after the value.
Everything else (tag bombs, regular expressions, shared references, NaN, ...) is refused.

``decode_strict`` reads bytes of strangers. ``decode`` reads bytes that ``encode`` once wrote.
"""

from collections.abc import Callable
from io import BytesIO
from math import isfinite
from typing import Any, Final, NoReturn

import cbor2

from perdure.eventlog.errors import CodecError

MAX_DEPTH: Final = 32
_MIN_INT: Final = -(1 << 63)
_MAX_INT: Final = (1 << 63) - 1

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
    _check(value, "value", 0)
    return value


def check(value: Value) -> None:
    """Raise CodecError unless the value fits the profile."""
    _check(value, "value", 0)


def _check(value: Value, place: str, depth: int) -> None:
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
        _check_items(value, place, depth + 1)
    elif not (value is None or kind is bool or kind is bytes):
        _refuse(place, f"a {kind.__name__}, which has no place in the log")


def _check_items(value: Value, place: str, depth: int) -> None:
    if type(value) is not dict:
        for item in value:
            _check(item, place, depth)
        return
    for key, item in value.items():
        if type(key) is not str:
            _refuse(place, f"a map key of type {type(key).__name__}")
        if not key.isascii() or "\0" in key:
            _check_text(key, place)
        if item is None or item is True or item is False:
            continue
        if type(item) is str and item.isascii() and "\0" not in item:
            continue
        _check(item, key, depth)


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
