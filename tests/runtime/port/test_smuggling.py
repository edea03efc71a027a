"""Requests that two readers could measure in two ways: all are refused, and nothing after them."""

from __future__ import annotations

import pytest

from tests.runtime.port.world import HOST, Echo, request, serving

START = b"POST / HTTP/1.1\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nhost: localhost\r\n\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNKS = START + HOST + CHUNKED + b"\r\n"

HEADS = {
    "length and coding": START + HOST + b"content-length: 4\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
    "coding and length": START + HOST + CHUNKED + b"content-length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": START + HOST + b"content-length: 0\r\ncontent-length: 5\r\n\r\n",
    "two lengths in one": START + HOST + b"content-length: 0, 5\r\n\r\n",
    "negative length": START + HOST + b"content-length: -1\r\n\r\n",
    "signed length": START + HOST + b"content-length: +0\r\n\r\n",
    "huge length": START + HOST + b"content-length: " + b"9" * 30 + b"\r\n\r\n",
    "hexadecimal length": START + HOST + b"content-length: 0x0\r\n\r\n",
    "spaced length": START + HOST + b"content-length: 1 0\r\n\r\n",
    "underscored length": START + HOST + b"content-length: 1_0\r\n\r\n",
    "empty length": START + HOST + b"content-length: \r\n\r\n",
    "other digits": START + HOST + "content-length: ٣\r\n\r\n".encode(),
    "obfuscated coding": START + HOST + b"transfer-encoding: xchunked\r\n\r\n",
    "quoted coding": START + HOST + b'transfer-encoding: "chunked"\r\n\r\n',
    "tabbed coding": START + HOST + b"transfer-encoding:\x0bchunked\r\n\r\n",
    "two codings": START + HOST + CHUNKED + CHUNKED + b"\r\n",
    "two codings in one": START + HOST + b"transfer-encoding: gzip, chunked\r\n\r\n",
    "coding that is none": START + HOST + b"transfer-encoding: identity\r\n\r\n",
    "coding in HTTP/1.0": b"POST / HTTP/1.0\r\n" + HOST + CHUNKED + b"\r\n0\r\n\r\n",
    "bare LF": START + b"host: localhost\n\r\n",
    "bare LF only": b"GET / HTTP/1.1\nhost: localhost\n\n",
    "bare LF at the end": START + HOST + b"a: b\n\n",
    "bare CR": START + HOST + b"a: b\rc: d\r\n\r\n",
    "space before the colon": START + HOST + b"content-length : 0\r\n\r\n",
    "space before the name": START + b" host: localhost\r\n\r\n",
    "folded line": START + HOST + b"a: b\r\n c\r\n\r\n",
    "folded with a tab": START + HOST + b"content-length:\r\n\t0\r\n\r\n",
    "NUL in a value": START + HOST + b"a: b\0c\r\n\r\n",
    "NUL in a name": START + HOST + b"a\0: b\r\n\r\n",
    "NUL in the target": b"GET /\0 HTTP/1.1\r\n" + HOST + b"\r\n",
    "no colon": START + HOST + b"thing\r\n\r\n",
    "no name": START + HOST + b": thing\r\n\r\n",
    "no host": START + b"\r\n",
    "two hosts": START + HOST + HOST + b"\r\n",
    "no host in HTTP/1.0": b"GET / HTTP/1.0\r\n\r\n",
    "a host that is none": START + b"host: a b\r\n\r\n",
    "a host with a path": START + b"host: localhost/x\r\n\r\n",
    "a host with a name before it": START + b"host: evil@localhost\r\n\r\n",
    "two origins": START + HOST + b"origin: http://localhost\r\norigin: http://evil\r\n\r\n",
    "two spaces": b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n",
    "tab for a space": b"GET\t/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "space at the end": b"GET / HTTP/1.1 \r\n" + HOST + b"\r\n",
    "empty lines first": b"\r\n\r\n" + request(),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}
BODIES = {
    "size that is none": CHUNKS + b"x\r\n",
    "size with a sign": CHUNKS + b"+5\r\nhello\r\n0\r\n\r\n",
    "size with 0x": CHUNKS + b"0x5\r\nhello\r\n0\r\n\r\n",
    "huge size": CHUNKS + b"f" * 17 + b"\r\nhello\r\n0\r\n\r\n",
    "empty size": CHUNKS + b"\r\nhello\r\n0\r\n\r\n",
    "space before the size": CHUNKS + b" 5\r\nhello\r\n0\r\n\r\n",
    "bare LF after the size": CHUNKS + b"5\nhello\r\n0\r\n\r\n",
    "bare LF in an extension": CHUNKS + b"5;a=\nb\r\nhello\r\n0\r\n\r\n",
    "bare CR in an extension": CHUNKS + b"5;a=\rb\r\nhello\r\n0\r\n\r\n",
    "NUL in an extension": CHUNKS + b"5;\0\r\nhello\r\n0\r\n\r\n",
    "long extension": CHUNKS + b"5;" + b"a" * 1000 + b"\r\nhello\r\n0\r\n\r\n",
    "chunk too long": CHUNKS + b"5\r\nhello!\r\n0\r\n\r\n",
    "bare LF after a chunk": CHUNKS + b"5\r\nhello\n0\r\n\r\n",
    "bare LF after the last": CHUNKS + b"5\r\nhello\r\n0\n\n",
    "bare LF in trailers": CHUNKS + b"5\r\nhello\r\n0\r\na: b\n\n",
    "bare CR in trailers": CHUNKS + b"5\r\nhello\r\n0\r\na: b\rc: d\r\n\r\n",
    "a trailer that is none": CHUNKS + b"5\r\nhello\r\n0\r\nGET / HTTP/1.1\r\n\r\n",
    "long trailers": CHUNKS + b"0\r\n" + b"a: b\r\n" * 2000 + b"\r\n",
}


@pytest.mark.parametrize("raw", HEADS.values(), ids=HEADS)
async def test_an_unsound_head_is_refused_with_all_that_follows(raw: bytes) -> None:
    """400, the connection closed, and the app has not seen a thing."""
    echo = Echo()
    async with serving(echo, memory=True) as world:
        client = await world.connect()
        await client.send(raw + HIDDEN)
        answer = await client.response()
        assert (answer.status, answer.code) == (400, "BAD_REQUEST")
        assert answer.headers["connection"] == "close"
        await client.stream.send_eof()
        assert await client.closed()
    assert echo.scopes == []
    assert world.port.counters.protocol_errors == 1
    assert world.port.counters.refused == {"BAD_REQUEST": 1}


@pytest.mark.parametrize("raw", BODIES.values(), ids=BODIES)
async def test_an_unsound_body_is_refused_with_all_that_follows(raw: bytes) -> None:
    """400, the connection closed; the app sees a disconnect, and never a second request."""
    echo = Echo()
    async with serving(echo, memory=True) as world:
        client = await world.connect()
        await client.send(raw + HIDDEN)
        assert (await client.response()).code == "BAD_REQUEST"
        await client.stream.send_eof()
        assert await client.closed()
    assert len(echo.scopes) == 1
    assert echo.seen == []
    assert world.port.counters.refused == {"BAD_REQUEST": 1}


@pytest.mark.parametrize("raw", [*HEADS.values(), *BODIES.values()], ids=[*HEADS, *BODIES])
async def test_it_is_refused_as_well_byte_by_byte(raw: bytes) -> None:
    """Where packets end changes nothing about it."""
    echo = Echo()
    async with serving(echo, memory=True) as world:
        client = await world.connect()
        await client.send(*(bytes([byte]) for byte in raw + HIDDEN))
        assert (await client.response()).code == "BAD_REQUEST"
    assert echo.seen == []


async def test_equal_lengths_are_one() -> None:
    """RFC 9110 lets a server take two that say the same, and nobody can disagree."""
    echo = Echo()
    async with serving(echo, memory=True) as world:
        client = await world.connect()
        twice = b"content-length: 2\r\ncontent-length: 2\r\n"
        await client.send(START + HOST + twice + b"\r\nhi" + HIDDEN)
        assert (await client.response()).body == b"hi"
        assert (await client.response()).headers["path"] == "/hidden"
