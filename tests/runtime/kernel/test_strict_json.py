"""JSON at the door."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError
from perdure.runtime.kernel.strict_json import decode_json, encode_json

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@given(VALUES)
def test_what_was_encoded_is_decoded(value: Any) -> None:
    """Every value of the profile comes back as it was, of the same type."""
    back = decode_json(encode_json(value))
    assert repr(back) == repr(value)


@given(VALUES, st.booleans())
def test_the_profile_is_that_of_the_log(value: Any, ascii_only: bool) -> None:
    """However it was written, what is decoded can be recorded."""
    data = json.dumps(value, ensure_ascii=ascii_only, indent=1).encode()
    assert cbor.decode(cbor.encode(decode_json(data))) == value


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'[{"b":{"a":":","a":"::"}}]',
        b'{"a":"\\u003a","a":1}',
        b'{"a:":1,"a\\u003A":1}',
        b'{"a":"\\u003a\\u003a\\u003a","b":1,"b":2}',
        b'{"":1,"":1}',
        b'{"a":{"x":1},"a":{}}',
    ],
)
def test_a_key_that_is_there_twice_is_refused(data: bytes) -> None:
    """At any depth, however it is written, whatever its values hold."""
    with pytest.raises(CodecError, match="twice"):
        decode_json(data)


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6), st.booleans(), st.booleans())
def test_keys_are_distinct_or_refused(
    pairs: list[tuple[str, str]], ascii_only: bool, nested: bool
) -> None:
    """Exactly those objects pass whose keys are distinct."""
    parts = ",".join(
        ":".join(json.dumps(text, ensure_ascii=ascii_only) for text in pair) for pair in pairs
    )
    text = f'{{"x": [{{{parts}}}]}}' if nested else f"{{{parts}}}"
    distinct = len({key for key, _ in pairs}) == len(pairs)
    if distinct:
        assert decode_json(text.encode()) == json.loads(text)
    else:
        with pytest.raises(CodecError, match="twice"):
            decode_json(text.encode())


@pytest.mark.parametrize("data", [b'{"a":"b:c"}', b'{"a:b":"\\u003a"}', b'["\\u003a:"]', b'":"'])
def test_a_colon_in_a_text_is_no_key(data: bytes) -> None:
    """Written as it is or as an escape."""
    assert decode_json(data) == json.loads(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"NaN", "not JSON"),
        (b"-Infinity", "not JSON"),
        (b"1e999", "not JSON"),
        (b"9223372036854775808", "64 bits"),
        (b"-9223372036854775809", "64 bits"),
        (b"1" * 5000, "not JSON"),
        (b'"\\u0000"', "NUL"),
        (b'{"\\u0000":1}', "NUL"),
        (b'"\\ud800"', "not JSON"),
        (b'"\\udc00"', "not JSON"),
        (b'"\xed\xa0\x80"', "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 33 + b"]" * 33, "32 levels"),
        (b"[" * 1_000_000, "levels"),
        (b'{"a":' * 150_000, "levels"),
        (b"1 2", "not JSON"),
        (b"", "not JSON"),
        (b'"' + b"x" * (1 << 20) + b'"', "at most 1048576"),
    ],
    ids=range(18),
)
def test_what_is_outside_of_the_profile_is_refused(data: bytes, why: str) -> None:
    """With a word on what it is; nothing hangs and nothing grows."""
    with pytest.raises(CodecError, match=why):
        decode_json(data)


def test_bytes_leave_as_base64() -> None:
    """And floats as they are."""
    assert (
        encode_json({"b": b"\x00\xff", "f": 1.0, "t": (1, 2)}) == b'{"b":"AP8=","f":1.0,"t":[1,2]}'
    )
