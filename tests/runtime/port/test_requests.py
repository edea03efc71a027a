"""Requests and responses over real sockets."""

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


async def test_the_scope_is_what_asgi_says() -> None:
    """Every field of an HTTP scope is there, decoded as the specification has it."""
    echo = Echo()
    async with serving(echo) as world:
        await world.get("/a%20b/%C3%A9?x=%20&y=1", b"X-Thing: Ab\r\nX-Thing: c\r\n")
    (scope,) = echo.scopes
    assert scope["type"] == "http"
    assert scope["asgi"] == {"version": "3.0", "spec_version": "2.4"}
    assert (scope["http_version"], scope["method"], scope["scheme"]) == ("1.1", "GET", "http")
    assert (scope["path"], scope["raw_path"]) == ("/a b/é", b"/a%20b/%C3%A9")
    assert (scope["query_string"], scope["root_path"]) == (b"x=%20&y=1", "")
    assert scope["headers"] == [(b"host", b"localhost"), (b"x-thing", b"Ab"), (b"x-thing", b"c")]
    assert scope["client"][0] == scope["server"][0] == "127.0.0.1"
    assert scope["server"] == world.address


async def test_a_connection_serves_one_request_after_the_other() -> None:
    """Keep-alive is the rule; `connection: close` and HTTP/1.0 are obeyed."""
    async with serving(Echo()) as world:
        client = await world.connect()
        for number in range(5):
            await client.send(post(b"x" * number, f"/{number}"))
            answer = await client.response()
            assert (answer.headers["path"], len(answer.body)) == (f"/{number}", number)
            assert "connection" not in answer.headers
        last = await client.get(more=b"connection: close\r\n")
        assert last.headers["connection"] == "close"
        assert await client.closed()
        old = await world.connect()
        await old.send(b"GET / HTTP/1.0\r\n" + HOST + b"\r\n")
        assert (await old.response()).status == 200
        assert await old.closed()
    assert world.port.counters.requests == 7
    assert world.port.counters.accepted == 2


async def test_three_requests_in_one_packet_are_answered_in_order() -> None:
    """Pipelined requests wait for their turn, bodies and all."""
    echo = Echo()
    async with serving(echo) as world:
        client = await world.connect()
        await client.send(request("/1") + post(b"two", "/2") + request("/3"))
        answers = [await client.response() for _ in range(3)]
        assert [answer.headers["path"] for answer in answers] == ["/1", "/2", "/3"]
        assert answers[1].body == b"two"
        assert (await client.get("/4")).headers["path"] == "/4"


async def test_pipelined_requests_let_others_be_served() -> None:
    """Many requests that came at once do not hold the event loop."""
    async with serving(Echo()) as world:
        greedy, modest = await world.connect(), await world.connect()
        await greedy.send(request("/greedy") * 500)
        assert (await greedy.response()).status == 200
        assert (await modest.get()).status == 200
        assert world.port.counters.requests < 500


async def test_an_app_that_watches_for_a_disconnect_loses_no_pipelined_byte() -> None:
    """What `receive` reads while it waits belongs to the next request."""
    waited = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert await read_body(receive) == b""
        if scope["path"] == "/first":
            async with trio.open_nursery() as nursery:

                async def watch() -> None:
                    assert (await receive())["type"] == "http.disconnect"
                    waited.set()

                nursery.start_soon(watch)
                await trio.testing.wait_all_tasks_blocked()
                await client.send(request("/second"))
                await trio.testing.wait_all_tasks_blocked(0.05)
                await send(start(path=scope["path"]))
                await send(body())
        else:
            await send(start(path=scope["path"]))
            await send(body())

    async with serving(app) as world:
        client = await world.connect()
        assert (await client.get("/first")).headers["path"] == "/first"
        assert (await client.response()).headers["path"] == "/second"
    assert waited.is_set()


@pytest.mark.parametrize("pieces", [1, 2, 7, 1000])
async def test_requests_may_come_in_any_pieces(pieces: int) -> None:
    """Where packets begin and end means nothing."""
    whole = request("/a") + post(b"hello", "/b") + request("/c", CHUNKED, "POST")
    whole += b"3\r\nabc\r\n0\r\nTrailer: x\r\n\r\n" + request("/d")
    size = max(1, len(whole) // pieces)
    echo = Echo()
    async with serving(echo, memory=True) as world:
        client = await world.connect()
        await client.send(*(whole[at : at + size] for at in range(0, len(whole), size)))
        for _ in range(4):
            await client.response()
    assert echo.seen == [
        ("GET", "/a", b""),
        ("POST", "/b", b"hello"),
        ("POST", "/c", b"abc"),
        ("GET", "/d", b""),
    ]


async def test_head_gets_the_headers_and_no_body() -> None:
    """The length is the one that GET would have, and the connection goes on."""
    async with serving(answering(start(content_length="5"), body(b"hello"))) as world:
        client = await world.connect()
        for _ in range(2):
            answer = await client.get(method="HEAD")
            assert (answer.headers["content-length"], answer.body) == ("5", b"")
        assert (await client.get()).body == b"hello"


@pytest.mark.parametrize("status", [204, 304])
async def test_statuses_without_a_body_have_none(status: int) -> None:
    """Whatever the app sends with them is dropped."""
    async with serving(answering(start(status), body(b"oops"))) as world:
        client = await world.connect()
        assert (await client.get()).status == status
        assert (await client.get()).body == b""


async def test_a_response_of_unknown_length_is_chunked() -> None:
    """For HTTP/1.0 it lasts until the connection is closed."""
    app = answering(start(), body(b"a" * 70_000, more=True), body(b"", more=True), body(b"b"))
    async with serving(app) as world:
        client = await world.connect()
        answer = await client.get()
        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.body == b"a" * 70_000 + b"b"
        old = await world.connect()
        await old.send(b"GET / HTTP/1.0\r\n" + HOST + b"\r\n")
        assert (await old.response()).body == b"a" * 70_000 + b"b"


async def test_the_head_of_a_response_waits_for_its_body() -> None:
    """An app that fails between the two has sent nothing yet."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start(200))
        raise ValueError("between")

    async with serving(app) as world:
        answer = await world.get()
        assert (answer.status, answer.code) == (500, "INTERNAL")


async def test_a_date_is_added_unless_there_is_one() -> None:
    """Caches need one; the app's own counts."""
    async with serving(answering(start(), body())) as world:
        assert (await world.get()).headers["date"].endswith(" GMT")
    async with serving(answering(start(Date="mine"), body())) as world:
        assert (await world.get()).headers["date"] == "mine"
