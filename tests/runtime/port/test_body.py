"""The readers of bodies, without any connection."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.runtime.port.body import ChunkedBody, LengthBody
from perdure.runtime.port.refusal import PortRefused

HEAD = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
NAMES = st.text("abcXYZ0-_!", min_size=1, max_size=5).map(str.encode)
VALUES = st.text("abc ;=\"\t'é", max_size=8).map(lambda text: text.encode("latin-1"))


@st.composite
def chunked(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A sound body in chunks, and its payload."""
    wire = payload = b""
    for chunk in draw(st.lists(st.binary(min_size=1, max_size=20), max_size=6)):
        payload += chunk
        extension = draw(st.just(b"") | VALUES.map(lambda value: b";x=" + value))
        size = draw(st.sampled_from(["{:x}", "{:X}", "{:04x}"])).format(len(chunk)).encode()
        wire += size + extension + b"\r\n" + chunk + b"\r\n"
    trailers = draw(st.lists(st.tuples(NAMES, VALUES), max_size=3))
    wire += b"0\r\n" + b"".join(b"%s: %s\r\n" % pair for pair in trailers) + b"\r\n"
    return wire, payload


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The same bytes in several parts."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def read(parts: list[bytes]) -> tuple[bytes, bytes, bool]:
    """Payload, what came after the body, and whether it ended."""
    reader = ChunkedBody()
    payload = rest = b""
    for part in parts:
        if reader.done:
            rest += part
            continue
        got, left = reader.take(part)
        payload += got
        rest += left
    return payload, rest, reader.done


@given(chunked(), st.binary(max_size=20), st.lists(st.integers(0, 500), max_size=8))
def test_chunks_are_read_in_any_pieces(
    body: tuple[bytes, bytes], after: bytes, cuts: list[int]
) -> None:
    """The payload comes out whole, and what comes after the body is not touched."""
    wire, payload = body
    assert read(pieces(wire + after, cuts)) == (payload, after, True)


@given(
    st.lists(
        st.sampled_from([b"5", b"0", b"a", b"\r\n", b"\n", b"\r", b";", b"x: y", b" ", b"hello"])
        | st.binary(max_size=6),
        max_size=14,
    ).map(b"".join),
    st.lists(st.integers(0, 500), max_size=8),
)
@example(b"0\r\n\r\n", [])
def test_what_is_accepted_is_what_h11_reads(wire: bytes, cuts: list[int]) -> None:
    """It takes less than h11 does, and never reads the same bytes in another way."""
    try:
        payload, rest, done = read(pieces(wire, cuts))
    except PortRefused:
        return
    theirs = h11.Connection(h11.SERVER)
    theirs.receive_data(HEAD + wire)
    other, ended = b"", False
    with suppress(h11.RemoteProtocolError):
        while (event := theirs.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Data):
                other += event.data
            if isinstance(event, h11.EndOfMessage):
                ended = True
                break
    if done:
        assert (payload, ended, rest) == (other, True, theirs.trailing_data[0])
    else:
        assert other.startswith(payload)
        assert not ended


def test_a_million_tiny_chunks_are_cheap_to_hold() -> None:
    """What waits to be parsed is never more than what came."""
    reader = ChunkedBody()
    payload, rest = reader.take(b"1\r\nx\r\n" * 10_000 + b"1")
    assert (len(payload), rest, reader.done) == (10_000, b"", False)
    assert len(reader._buffer) == 1


@pytest.mark.parametrize("length", [0, 1, 10])
def test_a_length_is_kept_to(length: int) -> None:
    """Exactly so many bytes are the body."""
    reader = LengthBody(length)
    assert reader.known == length
    assert reader.take(b"0123456789ab") == (b"0123456789ab"[:length], b"0123456789ab"[length:])
    assert reader.done
