"""Clients that close their side, or vanish."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from perdure.runtime.port import Disconnected
from tests.runtime.port.world import (
    body,
    read_body,
    request,
    serving,
    start,
)


async def test_a_half_closed_client_gets_its_response() -> None:
    """Who has said all can still listen: for one response, for several, for a stream."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert await read_body(receive) == b""
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await receive()
                nursery.cancel_scope.cancel()  # as an app that streams does it

            nursery.start_soon(watch)
            await send(start())
            for _ in range(5):
                await trio.sleep(0.01)
                await send(body(b"tick ", more=True))
            await send(body(b"end"))

    async with serving(app) as world:
        client = await world.connect()
        await client.send(request("/1") + request("/2"))
        await client.stream.send_eof()
        assert [(await client.response()).body for _ in range(2)] == [b"tick " * 5 + b"end"] * 2
        assert await client.closed()


async def ticking(send: Any) -> None:
    """Send something for ever."""
    while True:
        await send(body(b"tick", more=True))
        await trio.sleep(0.01)


@pytest.mark.parametrize("reset", [True, False])
async def test_a_stream_notices_that_its_client_has_vanished(*, reset: bool) -> None:
    """A reset at once, a mere close with the second write; and the app is not cancelled."""
    ended = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        with pytest.raises(Disconnected):
            await ticking(send)
        await trio.sleep(0.01)  # not cancelled
        assert (await receive())["type"] == "http.disconnect"
        ended.set()

    async with serving(app) as world:
        client = await world.connect()
        await client.send(request())
        await client.stream.receive_some(10)
        await (client.reset() if reset else client.stream.aclose())
        with trio.fail_after(5):
            await ended.wait()
    assert world.port.counters.crashes == 0


async def test_a_reset_wakes_an_app_that_waits() -> None:
    """`receive` returns when the connection breaks, though nothing is being sent."""
    ended = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read_body(receive)
        assert (await receive())["type"] == "http.disconnect"
        assert (await receive())["type"] == "http.disconnect"
        with pytest.raises(OSError, match="gone"):
            await send(start())
        ended.set()

    async with serving(app) as world:
        client = await world.connect()
        await client.send(request())
        await trio.testing.wait_all_tasks_blocked(0.01)
        await client.reset()
        with trio.fail_after(5):
            await ended.wait()


async def test_a_write_that_an_app_gives_up_breaks_the_connection() -> None:
    """Nobody knows how much of it was sent, so nothing may follow it."""
    ended = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        with trio.move_on_after(0.2) as scope_of_write:
            while True:
                await send(body(bytes(1 << 20), more=True))
        assert scope_of_write.cancelled_caught
        with pytest.raises(Disconnected):
            await send(body(b"more"))
        ended.set()

    async with serving(app) as world:
        client = await world.connect()
        await client.send(request())
        with trio.fail_after(5):
            await ended.wait()
        with pytest.raises(trio.BrokenResourceError):
            await client.rest()
    assert world.port.counters.crashes == 0
