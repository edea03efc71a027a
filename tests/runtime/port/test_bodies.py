"""Bodies of requests."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.runtime.port.world import (
    HOST,
    Echo,
    answering,
    body,
    post,
    read_body,
    request,
    serving,
    start,
)

CHUNKED = b"transfer-encoding: chunked\r\n"


async def test_chunked_bodies_are_read_with_extensions_and_trailers() -> None:
    """Extensions and trailers are passed over, as RFC 9112 asks."""
    echo = Echo()
    async with serving(echo) as world:
        client = await world.connect()
        await client.send(
            request("/", CHUNKED, "POST"), b'5;name="value"\r\nhel', b"lo\r\nA \r\n"[:-3]
        )
        await client.send(b"\r\n0123456789\r\n0\r\nx-sum: 1\r\nx-more: 2\r\n\r\n")
        assert (await client.response()).body == b"hello0123456789"
        assert (await client.get("/next")).headers["path"] == "/next"


async def test_what_is_left_of_a_small_body_is_dropped() -> None:
    """An app that does not read its body keeps the connection, if there is little of it."""
    async with serving(answering(start(), body(b"ok"))) as world:
        client = await world.connect()
        for content in (b"x" * 10, b"x" * 60_000):
            await client.send(post(content))
            assert (await client.response()).body == b"ok"
        await client.send(request("/", b"content-length: 1000000\r\n", "POST") + b"x" * 1000)
        assert (await client.response()).body == b"ok"
        await client.stream.send_eof()
        assert await client.closed()


async def test_an_app_reads_only_as_fast_as_it_asks() -> None:
    """A client that sends much waits for an app that reads little."""
    go_on = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["extensions"]["perdure.body_limit"](1 << 30)
        await receive()
        await go_on.wait()
        content = await read_body(receive)
        assert content is not None
        await send(start())
        await send(body())

    size = 20 << 20
    async with serving(app) as world:
        client = await world.connect()
        await client.send(request("/", b"content-length: %d\r\n" % size, "POST"))
        with trio.move_on_after(0.3) as scope:
            await client.send(bytes(size))
        assert scope.cancelled_caught
        assert world.port.counters.bytes_in < 1 << 20
        go_on.set()


async def test_a_client_that_leaves_within_its_body_is_a_disconnect() -> None:
    """The app sees it where it reads; half a body is never taken for a whole one."""
    got: list[bytes | None] = []
    three = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        got.append(await read_body(receive))
        if len(got) == 3:
            three.set()

    async with serving(app) as world:
        for end in (b"content-length: 100\r\n", CHUNKED):
            client = await world.connect()
            await client.send(request("/", end, "POST") + b"5\r\nhello")
            await client.stream.send_eof()
            assert (await client.response()).code == "BAD_REQUEST"
        client = await world.connect()
        await client.send(request("/", CHUNKED, "POST") + b"5\r\nhello")
        await trio.testing.wait_all_tasks_blocked(0.01)
        await client.stream.aclose()
        with trio.fail_after(5):
            await three.wait()
    assert got == [None, None, None]


EXPECT = b"expect: 100-continue\r\n"


async def test_a_client_that_waits_is_told_to_continue_when_the_app_reads() -> None:
    """The body is asked for once, and not before somebody wants it."""
    async with serving(Echo()) as world:
        client = await world.connect()
        await client.send(request("/", EXPECT + b"content-length: 5\r\n", "POST"))
        assert await client.stream.receive_some() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"he", b"llo")
        assert (await client.response()).body == b"hello"
        assert client.informed == []
        await client.send(request("/", EXPECT + b"content-length: 2\r\n", "POST") + b"hi")
        assert (await client.response()).body == b"hi"
        assert client.informed == []


async def test_an_app_that_does_not_read_answers_a_waiting_client_at_once() -> None:
    """Nobody knows whether the body comes then: the connection ends."""
    async with serving(answering(start(403), body(b"no"))) as world:
        client = await world.connect()
        await client.send(request("/", EXPECT + b"content-length: 5\r\n", "POST"))
        answer = await client.response()
        assert (answer.status, answer.headers["connection"], client.informed) == (403, "close", [])
        await client.stream.send_eof()
        assert await client.closed()


@pytest.mark.parametrize(
    "fields",
    [
        b"expect: foo\r\n",
        b"expect: 100-continue, foo\r\n",
        b"expect: foo\r\nexpect: 100-continue\r\n",
        b"expect: 100-continue=1\r\n",
    ],
)
async def test_what_nobody_can_promise_is_refused(fields: bytes) -> None:
    """A client that expects something else is told so before its body is read."""
    async with serving(Echo()) as world:
        client = await world.connect()
        await client.send(request("/", fields + b"content-length: 5\r\n", "POST"))
        answer = await client.response()
        assert (answer.status, answer.code) == (417, "EXPECTATION_FAILED")
        assert client.informed == []
        assert await client.closed()


@pytest.mark.parametrize("fields", [b"expect: foo\r\n", EXPECT])
async def test_the_expectations_of_http_1_0_are_passed_over(fields: bytes) -> None:
    """That version has none."""
    async with serving(Echo()) as world:
        client = await world.connect()
        await client.send(b"POST / HTTP/1.0\r\n" + HOST + fields + b"content-length: 2\r\n\r\nhi")
        assert (await client.response()).body == b"hi"
        assert client.informed == []
