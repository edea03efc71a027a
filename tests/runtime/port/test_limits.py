"""Every limit: what one client may cost. In virtual time, in memory."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.runtime.port import PortLimits
from tests.runtime.port.world import (
    HOST,
    Client,
    Echo,
    answering,
    body,
    post,
    request,
    serving,
    start,
)

CHUNKED = b"transfer-encoding: chunked\r\n"


async def drip(client: Client, data: bytes, seconds: float) -> None:
    """Send byte by byte until all is sent or the other side has had enough."""
    for byte in data:
        try:
            await client.send(bytes([byte]))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        await trio.sleep(seconds)


async def test_a_head_has_so_many_bytes() -> None:
    """One more is 431, also for a head that never ends."""
    limits = PortLimits(head_bytes=1000)
    async with serving(Echo(), memory=True, limits=limits) as world:
        room = 1000 - len(request(more=b"x: \r\n"))
        for pad, status in ((room, 200), (room + 1, 431)):
            client = await world.connect()
            assert (await client.get(more=b"x: " + b"a" * pad + b"\r\n")).status == status
        endless = await world.connect()
        await endless.send(b"GET /" + b"a" * 1000)
        assert (await endless.response()).code == "HEAD_TOO_LARGE"


async def test_a_head_has_so_many_fields() -> None:
    """Each of them is work, however short."""
    async with serving(Echo(), memory=True, limits=PortLimits(head_fields=10)) as world:
        for count, status in ((9, 200), (10, 431)):
            client = await world.connect()
            assert (await client.get(more=b"a:\r\n" * count)).status == status


async def test_a_body_has_so_many_bytes_by_its_length() -> None:
    """Refused before it is read, and before a client that waits is told to go on."""
    async with serving(Echo(), memory=True, limits=PortLimits(body_bytes=10)) as world:
        client = await world.connect()
        await client.send(post(b"0123456789"))
        assert (await client.response()).status == 200
        more = b"content-length: 11\r\nexpect: 100-continue\r\n"
        await client.send(request("/", more, "POST"))
        answer = await client.response()
        assert (answer.status, answer.code, client.informed) == (413, "PAYLOAD_TOO_LARGE", [])
        assert answer.headers["connection"] == "close"


async def test_a_body_has_so_many_bytes_while_it_streams() -> None:
    """Chunks that go on are refused where they pass the limit."""
    echo = Echo()
    async with serving(echo, memory=True, limits=PortLimits(body_bytes=10)) as world:
        client = await world.connect()
        await client.send(request("/", CHUNKED, "POST"), b"a\r\n0123456789\r\n", b"0\r\n\r\n")
        assert (await client.response()).status == 200
        await client.send(request("/", CHUNKED, "POST"), b"a\r\n0123456789\r\n", b"1\r\nx")
        assert (await client.response()).code == "PAYLOAD_TOO_LARGE"
    assert len(echo.seen) == 1
    assert world.port.counters.refused == {"PAYLOAD_TOO_LARGE": 1}


async def test_a_route_may_take_more() -> None:
    """An app that expects uploads raises the limit of one request."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/upload":
            scope["extensions"]["perdure.body_limit"](1000)
        await Echo()(scope, receive, send)

    async with serving(app, memory=True, limits=PortLimits(body_bytes=10)) as world:
        client = await world.connect()
        await client.send(post(b"x" * 1000, "/upload"))
        assert (await client.response()).status == 200
        await client.send(post(b"x" * 11, "/other"))
        assert (await client.response()).status == 413


async def test_a_body_refused_within_a_response_breaks_it_off() -> None:
    """What has begun cannot be taken back, and must not look complete."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        await send(body(b"so far", more=True))
        while (await receive())["type"] != "http.disconnect":
            pass

    async with serving(app, memory=True) as world:
        client = await world.connect()
        await client.send(request("/", CHUNKED, "POST"), b"zzz\r\n")
        raw = await client.rest()
    assert b"so far" in raw
    assert not raw.endswith(b"0\r\n\r\n")


# --- time ----------------------------------------------------------------------------------------


async def test_the_first_byte_has_to_come(autojump_clock: MockClock) -> None:
    """A connection that says nothing is closed without a word."""
    async with serving(Echo(), memory=True, limits=PortLimits(first_byte=5)) as world:
        begun = trio.current_time()
        assert await (await world.connect()).closed()
        assert trio.current_time() - begun == pytest.approx(5)


async def test_an_idle_connection_is_closed(autojump_clock: MockClock) -> None:
    """It may rest between two requests, for some time."""
    async with serving(Echo(), memory=True, limits=PortLimits(first_byte=5, idle=20)) as world:
        client = await world.connect()
        for _ in range(3):
            assert (await client.get()).status == 200
            await trio.sleep(19)
        assert (await client.get()).status == 200
        begun = trio.current_time()
        assert await client.closed()
        assert trio.current_time() - begun == pytest.approx(20)


@pytest.mark.parametrize("before", [0, 1])
async def test_a_head_that_drips_is_ended(autojump_clock: MockClock, before: int) -> None:
    """The whole head has its time, from its first byte; that bytes still come does not help."""
    echo = Echo()
    async with serving(echo, memory=True, limits=PortLimits(head_time=10)) as world:
        client = await world.connect()
        for _ in range(before):
            await client.get()
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip, client, request(more=b"x: " + b"a" * 500 + b"\r\n"), 1)
            answer = await client.response()
            assert (answer.code, "retry-after" in answer.headers) == ("REQUEST_TIMEOUT", False)
            assert trio.current_time() - begun == pytest.approx(10)
            assert await client.closed()
            nursery.cancel_scope.cancel()
    assert len(echo.seen) == before


async def test_many_dripping_heads_harm_nobody(autojump_clock: MockClock) -> None:
    """While they drip, others are served; then all of them are gone."""
    async with (
        serving(Echo(), memory=True, limits=PortLimits(head_time=10)) as world,
        trio.open_nursery() as nursery,
    ):
        for _ in range(80):
            nursery.start_soon(drip, await world.connect(), b"GET / HTTP/1.1\r\n" + b"a" * 99, 1)
        await trio.sleep(5)
        assert world.port.connections == 80
        assert (await world.get()).status == 200
        await trio.sleep(10)
        assert world.port.connections == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("framing", [b"content-length: 100000\r\n", CHUNKED])
async def test_a_body_that_drips_is_ended(autojump_clock: MockClock, framing: bytes) -> None:
    """It has to make some progress in each window of waiting for it."""
    limits = PortLimits(body_window=10, body_progress=100)
    async with serving(Echo(), memory=True, limits=limits) as world:
        client = await world.connect()
        await client.send(request("/", framing, "POST"))
        begun = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip, client, b"ffff\r\n" + b"x" * 500, 1)
            assert (await client.response()).code == "REQUEST_TIMEOUT"
            assert trio.current_time() - begun == pytest.approx(10)
            nursery.cancel_scope.cancel()


async def test_a_body_may_take_long_if_it_moves(autojump_clock: MockClock) -> None:
    """Not time but progress is asked for."""
    limits = PortLimits(body_window=10, body_progress=100)
    async with serving(Echo(), memory=True, limits=limits) as world:
        client = await world.connect()
        await client.send(request("/", b"content-length: 10000\r\n", "POST"))
        for _ in range(100):
            await client.send(b"x" * 100)
            await trio.sleep(9)
        assert len((await client.response()).body) == 10_000


async def test_an_app_may_take_long_to_read(autojump_clock: MockClock) -> None:
    """Time in which nobody asks for the body is not the client's."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await trio.sleep(100)
        await Echo()(scope, receive, send)

    async with serving(app, memory=True, limits=PortLimits(body_window=10)) as world:
        client = await world.connect()
        await client.send(request("/", b"content-length: 20\r\n", "POST") + b"x" * 10)
        await trio.sleep(105)
        await client.send(b"y" * 10)
        assert (await client.response()).body == b"y" * 10


async def flood(send: Any) -> None:
    """Send without end."""
    while True:
        await send(body(bytes(1 << 20), more=True))


async def test_a_client_that_takes_nothing_is_aborted() -> None:
    """A response waits for its reader for so long; then the connection is broken, not the app."""
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        with pytest.raises(OSError, match="takes nothing"):
            await flood(send)
        seen.append((await receive())["type"])

    async with serving(app, limits=PortLimits(send_time=0.3)) as world:
        client = await world.connect()
        await client.send(request())
        with trio.fail_after(10):
            while world.port.connections or not seen:  # noqa: ASYNC110 - of a real kernel
                await trio.sleep(0.05)
        with pytest.raises(trio.BrokenResourceError):
            await client.rest()
    assert seen == ["http.disconnect"]
    assert world.port.counters.stalled == 1
    assert world.port.counters.crashes == 0


async def test_a_client_that_reads_slowly_gets_everything() -> None:
    """As long as it takes a piece now and then."""
    size = 4 << 20
    app = answering(start(), body(bytes(size)))
    async with serving(app, limits=PortLimits(send_time=1)) as world:
        client = await world.connect()
        await client.send(request())
        got = 0
        while got < size:
            data = await client.stream.receive_some(512 << 10)
            assert data
            got += len(data)
            await trio.sleep(0.05)
        assert world.port.counters.stalled == 0


# --- requests and refusals -----------------------------------------------------------------------


async def test_a_connection_has_so_many_requests() -> None:
    """The last response says that it is the last."""
    async with serving(Echo(), memory=True, limits=PortLimits(requests_per_connection=3)) as world:
        client = await world.connect()
        said = [(await client.get()).headers.get("connection") for _ in range(3)]
        assert said == [None, None, "close"]
        assert await client.closed()


async def test_who_was_refused_and_stays_is_dropped(autojump_clock: MockClock) -> None:
    """There is some time to read why, and no more than that."""
    async with serving(Echo(), memory=True, limits=PortLimits(linger=2)) as world:
        client = await world.connect()
        await client.send(b"nonsense\r\n\r\n")
        begun = trio.current_time()
        await client.response()
        await drip(client, b"x" * 100, 1)
        assert trio.current_time() - begun < 5
        await trio.sleep(1)
        assert world.port.connections == 0


async def test_a_refusal_reaches_a_client_that_still_sends() -> None:
    """Over a real socket: what is unread must not turn the answer into a reset."""
    async with serving(Echo(), limits=PortLimits(body_bytes=1000)) as world:
        for _ in range(20):
            client = await world.connect()
            await client.send(post(b"x" * 200_000))
            assert (await client.response()).status == 413
            client = await world.connect()
            await client.send(b"GET / HTTP/1.1\n" + HOST + b"x" * 100_000)
            assert (await client.response()).status == 400
