"""What clients make the port keep in memory: counted, bounded, given back."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from perdure.runtime.http.middleware import Middleware
from perdure.runtime.kernel.budget import Budget
from perdure.runtime.kernel.routes.arguments import hold_memory
from tests.runtime.memory import without_collector
from tests.runtime.port.world import Client, Echo, answering, body, post, request, serving, start

SHARE = 100_000


def budget() -> Budget:
    """Give one of which a connection alone has 100,000 bytes."""
    return Budget(4 * SHARE)


class _Request:
    """As much of Starlette's request as memory is held by."""

    def __init__(self, scope: Any) -> None:
        self.scope = scope


async def gathering(scope: Any, receive: Any, send: Any) -> None:
    """Keep the whole body in memory, as routes of operations do, then answer with its size."""
    kept = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        hold_memory(_Request(scope), len(message["body"]))  # type: ignore[arg-type]
        kept += message["body"]
        if not message["more_body"]:
            break
    await send(start())
    await send(body(b"%d" % len(kept)))


async def test_a_body_on_its_way_is_held_until_it_was_answered() -> None:
    """What has come of it, and not what its length says."""
    async with serving(Middleware(gathering), memory=True, budget=budget()) as world:
        client = await world.connect()
        await client.send(request("/", b"content-length: 50000\r\n", "POST") + b"x" * 20_000)
        await wait_all_tasks_blocked()
        assert 20_000 <= world.port.budget.held < 45_000
        await client.send(b"x" * 30_000)
        assert (await client.response()).body == b"50000"
        await wait_all_tasks_blocked()
        assert world.port.budget.held == 0


async def test_bodies_stay_within_the_budget_and_leave_room_for_others(
    autojump_clock: MockClock,
) -> None:
    """Who sends too much at once is told to try again; who sends little is served."""
    async with serving(Middleware(gathering), memory=True, budget=budget()) as world:
        clients = [await world.connect() for _ in range(30)]
        for client in clients:
            await client.send(request("/", b"content-length: 90000\r\n", "POST") + b"x" * 30_000)
        await wait_all_tasks_blocked()
        assert world.port.budget.held <= 4 * SHARE
        assert (await world.get()).status == 200
        answer = await clients[-1].response()
        assert (answer.status, answer.code) == (503, "OVERLOADED")
        assert answer.headers["retry-after"] == "1"
        assert 0 < world.port.budget.refusals < 30
        assert world.port.counters.crashes == 0
    assert world.port.budget.held == 0


async def test_an_upload_is_held_by_the_piece() -> None:
    """One that is passed on takes no more memory at its end than at its beginning."""
    size = 10 * SHARE

    async def passing(scope: Any, receive: Any, send: Any) -> None:
        scope["extensions"]["perdure.body_limit"](size)
        while (await receive())["more_body"]:
            assert world.port.budget.held < SHARE
        await send(start())
        await send(body())

    async with serving(passing, memory=True, budget=budget()) as world:
        client = await world.connect()
        await client.send(post(b"x" * size))
        assert (await client.response()).status == 200
        await wait_all_tasks_blocked()
        assert world.port.budget.held == 0


async def test_heads_on_their_way_stay_within_the_budget(autojump_clock: MockClock) -> None:
    """However many begin one and do not end it."""
    async with serving(Echo(), memory=True, budget=budget()) as world:
        for _ in range(60):
            client = await world.connect()
            await client.send(b"GET / HTTP/1.1\r\nx: " + b"a" * 20_000)
        await wait_all_tasks_blocked()
        assert SHARE < world.port.budget.held <= 4 * SHARE
        assert world.port.counters.refused["OVERLOADED"] > 0
        assert (await world.get()).status == 200
        await trio.sleep(15)
        assert world.port.budget.held == 0


async def test_a_response_is_held_until_it_was_taken() -> None:
    """Once, however large it is: no part of it is copied as a whole."""
    size = 8 << 20
    app = answering(start(), body(bytes(size)))
    async with serving(app, budget=Budget(64 << 20)) as world:
        client = await world.connect()
        await client.send(request())
        await _until(lambda: world.port.budget.held > 0)
        assert size <= world.port.budget.held < size + 10_000
        assert len((await client.response()).body) == size
        await _until(lambda: world.port.budget.held == 0)
        await client.send(request())
        await _until(lambda: world.port.budget.held > 0)
        await client.stream.aclose()
        await _until(lambda: world.port.budget.held == 0)


async def test_a_response_for_which_there_is_no_room_becomes_an_error() -> None:
    """As long as nothing of it was sent; the next connection is served."""
    app = answering(start(), body(bytes(SHARE + 1)))
    async with serving(app, memory=True, budget=budget()) as world:
        answer = await world.get()
        assert (answer.status, answer.code) == (503, "OVERLOADED")
        assert world.port.counters.crashes == 0
        assert world.port.budget.held == 0


async def test_the_answer_to_a_write_is_sent_though_there_is_no_room() -> None:
    """What it tells was done: a client that hears OVERLOADED would ask for it again."""
    app = answering(start(), body(bytes(SHARE + 1)))
    async with serving(app, memory=True, budget=budget()) as world:
        client = await world.connect()
        await client.send(request("/", b"content-length: 0\r\n", "POST"))
        assert len((await client.response()).body) == SHARE + 1
        await wait_all_tasks_blocked()
        assert world.port.budget.held == 0


async def test_a_stream_for_which_there_is_no_room_is_broken_off() -> None:
    """It must not look complete."""
    app = answering(start(), body(b"so far", more=True), body(bytes(SHARE + 1)))
    async with serving(app, memory=True, budget=budget()) as world:
        client = await world.connect()
        await client.send(request())
        raw = await client.rest()
        assert b"so far" in raw
        assert not raw.endswith(b"0\r\n\r\n")
        assert world.port.budget.held == 0


async def test_a_client_that_sends_ahead_while_it_waits_is_bounded(
    autojump_clock: MockClock,
) -> None:
    """What it sends for later is held; too much of it ends its connection."""

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await scope["extensions"]["perdure.hung_up"]()

    async with serving(waiting, memory=True, budget=Budget(40_000)) as world:
        client = await world.connect()
        await client.send(request(), b"x" * 20_000)
        with trio.fail_after(5):
            await client.rest()
        assert world.port.budget.held == 0


async def test_what_was_refused_is_free_at_once() -> None:
    """And not when the garbage collector comes by: no error keeps itself, and a body with it."""
    async with serving(Middleware(gathering), memory=True, budget=budget()) as world:
        await world.get()
        with without_collector() as memory:
            for _ in range(10):
                client = await world.connect()
                await client.send(post(b"x" * 2 * SHARE))
                assert (await client.response()).code == "OVERLOADED"
                await client.stream.aclose()
                world.clients.clear()
            await wait_all_tasks_blocked()
            assert memory() < 2 * SHARE


@pytest.mark.parametrize("pace", [5_000, 8_000])
async def test_a_body_comes_at_the_pace_of_a_modem_or_is_ended(
    autojump_clock: MockClock, pace: int
) -> None:
    """Slower ones would hold memory for hours (408)."""
    async with serving(Middleware(gathering), memory=True) as world:
        client = await world.connect()
        await client.send(request("/", b"content-length: 400000\r\n", "POST"))
        await _drip(client, 400_000, pace)
        assert (await client.response()).status == (200 if pace > 6_600 else 408)


async def _drip(client: Client, size: int, pace: int) -> None:
    for _ in range(0, size, pace):
        try:
            await client.send(b"x" * pace)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        await trio.sleep(1)


async def _until(condition: Any) -> None:
    with trio.fail_after(10):
        while not condition():  # noqa: ASYNC110 - of a real kernel
            await trio.sleep(0.01)
