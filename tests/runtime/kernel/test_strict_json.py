"""JSON at the door."""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.eventlog import cbor
from perdure.eventlog.env import RealEnv
from perdure.eventlog.errors import CodecError
from perdure.runtime.kernel.decoding import LARGE, off_the_loop
from perdure.runtime.kernel.strict_json import decode_message, encode_json

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
    back = decode_message(encode_json(value)).value
    assert repr(back) == repr(value)


@given(VALUES, st.booleans())
def test_the_profile_is_that_of_the_log(value: Any, ascii_only: bool) -> None:
    """However it was written, what is decoded can be recorded."""
    data = json.dumps(value, ensure_ascii=ascii_only, indent=1).encode()
    assert cbor.decode(cbor.encode(decode_message(data).value)) == value


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
        decode_message(data)


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
        assert decode_message(text.encode()).value == json.loads(text)
    else:
        with pytest.raises(CodecError, match="twice"):
            decode_message(text.encode())


@pytest.mark.parametrize("data", [b'{"a":"b:c"}', b'{"a:b":"\\u003a"}', b'["\\u003a:"]', b'":"'])
def test_a_colon_in_a_text_is_no_key(data: bytes) -> None:
    """Written as it is or as an escape."""
    assert decode_message(data).value == json.loads(data)


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
        (b"[" * 20_000, "levels"),
        (b'{"a":' * 20_000, "levels"),
        (b"[" * 1_000_000, "20,000 values"),
        (b"1 2", "not JSON"),
        (b"", "not JSON"),
        (b'"' + b"x" * (1 << 20) + b'"', "at most 1048576"),
    ],
    ids=range(19),
)
def test_what_is_outside_of_the_profile_is_refused(data: bytes, why: str) -> None:
    """With a word on what it is; nothing hangs and nothing grows."""
    with pytest.raises(CodecError, match=why):
        decode_message(data)


def test_bytes_leave_as_base64() -> None:
    """And floats as they are."""
    assert (
        encode_json({"b": b"\x00\xff", "f": 1.0, "t": (1, 2)}) == b'{"b":"AP8=","f":1.0,"t":[1,2]}'
    )


@given(VALUES, st.integers(1, 12), st.booleans())
def test_a_message_has_so_many_values_in_either_format(
    value: Any, most: int, ascii_only: bool
) -> None:
    """Exactly those are refused that have more, however they are written."""
    count = _values(value)
    written = json.dumps(value, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cbor, "MAX_VALUES", most)
        for decode, data in (
            (decode_message, written),
            (decode_message, encode_json(value)),
            (cbor.decode_message, cbor.encode(value)),
        ):
            if count > most:
                with pytest.raises(CodecError, match=f"{most} values"):
                    decode(data)
            else:
                assert decode(data) == (value, count)


def _values(value: Any) -> int:
    """Count a value and all that it contains."""
    if isinstance(value, dict):
        return 1 + sum(map(_values, value.values()))
    return 1 + sum(map(_values, value)) if isinstance(value, list) else 1


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (decode_message, b"[" + b"[]," * 340_000 + b"1]"),
        (decode_message, b"[" + b'"a",' * 260_000 + b"1]"),
        (decode_message, b"[" + b"1," * 500_000 + b"1]"),
        (cbor.decode_message, b"\x9a\x00\x0f\x42\x40" + b"\x80" * 1_000_000),
    ],
    ids=["lists", "texts", "numbers", "cbor"],
)
def test_many_values_are_refused_before_they_are_made(
    decode: Callable[[bytes], cbor.Counted], data: bytes
) -> None:
    """A MiB of the smallest values would become more than twenty."""
    tracemalloc.start()
    try:
        with pytest.raises(CodecError, match="20,000 values"):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", [b"a,[{", b'\\"', b"\\\\", b'\\\\\\"'])
def test_a_text_is_one_value_whatever_is_written_in_it(text: bytes) -> None:
    """Commas, brackets, quotes and backslashes by the hundred thousand."""
    data = b'{"a":"%b"}' % (text * 150_000)
    assert decode_message(data).values == 2


async def test_a_large_message_is_decoded_in_a_thread() -> None:
    """A small one is not: that would take longer."""
    here = threading.get_ident()
    for size, apart in ((LARGE - 1, False), (LARGE, True)):
        there = await off_the_loop(RealEnv(), threading.get_ident, size)
        assert (there != here) == apart
