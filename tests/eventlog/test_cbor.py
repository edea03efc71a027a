from __future__ import annotations

import math
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError
from tests.fuzz import examples

text = st.text(
    st.characters(exclude_characters="\0", categories=("L", "N", "P", "S", "Z", "Co")), max_size=20
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
    | st.binary(max_size=20)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4)
)


@given(values)
def test_what_is_encoded_is_decoded_the_same(value: Any) -> None:
    """Every value of the profile survives, by the plain and by the strict way."""
    data = cbor.encode(value)
    assert cbor.decode(data) == value
    assert cbor.decode_strict(data) == value


@examples()
@given(st.binary(max_size=200))
def test_bytes_of_strangers_are_decoded_or_refused(data: bytes) -> None:
    """Any bytes give a value of the profile or a CodecError, and nothing else."""
    try:
        value = cbor.decode_strict(data)
    except CodecError:
        return
    assert cbor.decode_strict(cbor.encode(value)) == value


HOSTILE = {
    "semantic tag": "c074323032362d30312d30315430303a30303a30305a",
    "bignum tag": "c249010000000000000000",
    "decimal tag with a huge exponent": "c4821a3b9aca0001",
    "regular expression tag": "d8236528612b292b24"[:18],
    "shared reference": "d81c8100",
    "cyclic reference": "d81c81d81d00",
    "unknown tag": "d9270f00",
    "self-described CBOR": "d9d9f700",
    "indefinite array": "9f01ff",
    "indefinite map": "bf616101ff",
    "indefinite text": "7f6161ff",
    "indefinite bytes": "5f4161ff",
    "duplicate keys": "a2616101616102",
    "trailing bytes": "0102",
    "NUL in text": "63610062",
    "lone surrogate": "63eda080",
    "not a number": "f97e00",
    "infinity": "f97c00",
    "undefined": "f7",
    "simple value": "f8ff",
    "integer key": "a10101",
    "byte string key": "a1416101",
    "array as key": "a1818001",
    "integer of 65 bits": "1bffffffffffffffff",
    "array of 2^40 items": "9b0000010000000000",
    "bytes of 2^40": "5b0000010000000000",
    "map of 2^40": "bb0000010000000000",
    "cut short": "8301",
    "nothing": "",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_bytes_are_refused(data: str) -> None:
    """Everything outside the profile is refused before anybody uses it."""
    with pytest.raises(CodecError):
        cbor.decode_strict(bytes.fromhex(data))


def test_nesting_ends_at_thirty_two() -> None:
    """Thirty-two levels pass, one more is refused, on the way in and on the way out."""
    for levels, accepted in ((32, True), (33, False), (100_000, False)):
        data = b"\x81" * levels + b"\x00"
        if accepted:
            assert cbor.encode(cbor.decode_strict(data)) == data
        else:
            with pytest.raises(CodecError):
                cbor.decode_strict(data)
    deep: list[Any] = []
    for _ in range(33):
        deep = [deep]
    with pytest.raises(CodecError, match="levels"):
        cbor.encode(deep)


def test_a_size_limit_comes_first() -> None:
    """Too many bytes are refused without being looked at."""
    with pytest.raises(CodecError, match="at most 10"):
        cbor.decode_strict(b"\x00" * 11, max_bytes=10)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "finite"),
        (math.inf, "finite"),
        (1 << 63, "64 bits"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
        ({1: 2}, "map key"),
        ({"a\0": 1}, "NUL"),
        ({"place": [object()]}, "place holds a object"),
        ({1, 2}, "set"),
        (cbor2.CBORTag(35, "(a+)+$"), "CBORTag"),
    ],
)
def test_what_cannot_be_read_back_is_not_written(value: Any, reason: str) -> None:
    """Encoding refuses the same things and names the place."""
    with pytest.raises(CodecError, match=reason):
        cbor.encode(value)
