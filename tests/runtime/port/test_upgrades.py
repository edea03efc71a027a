"""Connections that go on as something else."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import trio

from perdure.runtime.port import Upgrade
from tests.runtime.port.world import HOST, Echo, request, serving

UPGRADE = b"connection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n"


async def shout(upgrade: Upgrade) -> None:
    """Another protocol: what is said comes back in capitals, until the client has said all."""
    stream = upgrade.stream
    await stream.send_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
    await stream.send_all(upgrade.trailing.upper())
    async for data in stream:
        await stream.send_all(data.upper())


@pytest.mark.parametrize("memory", [True, False])
async def test_any_request_of_a_connection_may_upgrade(memory: bool) -> None:
    """The first one, or one after others; what was sent behind it is not lost."""
    for before in (0, 2):
        async with serving(Echo(), memory=memory, upgrade=shout) as world:
            client = await world.connect()
            for _ in range(before):
                assert (await client.get()).status == 200
            await client.send(request("/ws", UPGRADE) + b"early ", b"late")
            await client.stream.send_eof()
            raw = await client.rest()
            assert raw.startswith(b"HTTP/1.1 101 ")
            assert raw.endswith(b"EARLY LATE")
        assert world.port.counters.upgrades == 1
        assert world.port.counters.requests == before + 1


async def test_a_pipelined_request_may_upgrade() -> None:
    """It waits for the responses before it."""
    async with serving(Echo(), upgrade=shout) as world:
        client = await world.connect()
        await client.send(request("/first") + request("/ws", UPGRADE) + b"x")
        assert (await client.response()).headers["path"] == "/first"
        await client.stream.send_eof()
        assert (await client.rest()).endswith(b"X")


async def test_a_handler_knows_what_was_asked() -> None:
    """The request, both ends, and a head that a library can parse once more."""
    seen: list[Upgrade] = []
    body = bytearray()

    async def handler(upgrade: Upgrade) -> None:
        seen.append(upgrade)
        assert isinstance(upgrade.socket, trio.socket.SocketType)
        assert upgrade.stream.socket is upgrade.socket  # type: ignore[attr-defined]
        body.extend(upgrade.trailing)
        while not body.endswith(b"body"):
            body.extend(await upgrade.stream.receive_some())
        await upgrade.stream.send_all(b"ok")

    async with serving(Echo(), upgrade=handler) as world:
        client = await world.connect()
        target = b"GET http://localhost/w%20s?a=1 HTTP/1.1\r\n"
        await client.send(target + HOST + UPGRADE + b"X-Token: Ab\r\n\r\nbo")
        await client.send(b"dy")
        assert await client.rest() == b"ok"
    (upgrade,) = seen
    assert (upgrade.path, upgrade.query, upgrade.scheme) == ("/w s", b"a=1", "http")
    assert (b"x-token", b"Ab") in upgrade.headers
    assert upgrade.client is not None
    assert upgrade.server == world.address
    assert upgrade.head.startswith(b"GET /w%20s?a=1 HTTP/1.1\r\nhost: localhost\r\n")
    assert body == b"body"


async def test_a_handler_can_refuse() -> None:
    """With an error of the table in its usual shape, and more headers; the connection ends."""

    async def handler(upgrade: Upgrade) -> None:
        await upgrade.refuse("OVERLOADED", "come again", (b"x-more", b"1"))

    async with serving(Echo(), upgrade=handler) as world:
        client = await world.connect()
        answer = await client.get("/ws", UPGRADE)
        assert (answer.status, answer.code) == (503, "OVERLOADED")
        assert (answer.headers["retry-after"], answer.headers["x-more"]) == ("1", "1")
        await client.stream.send_eof()
        assert await client.closed()


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug"),
        ExceptionGroup("of a nursery", [ValueError("a bug"), trio.BrokenResourceError()]),
        RecursionError(),
    ],
)
async def test_a_handler_that_fails_ends_its_connection_only(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, and everybody else is served."""

    async def handler(upgrade: Upgrade) -> None:
        raise error

    async with serving(Echo(), upgrade=handler) as world:
        other = await world.connect()
        await other.get()
        client = await world.connect()
        await client.send(request("/ws", UPGRADE))
        with pytest.raises(trio.BrokenResourceError):
            await client.rest()
        assert (await other.get()).status == 200
    assert len(caplog.records) == 1
    assert world.port.counters.crashes == 1


@pytest.mark.parametrize(
    "head",
    [
        request("/ws", b"upgrade: websocket\r\n"),
        request("/ws", b"connection: upgrade\r\nupgrade: h2c\r\n"),
        request("/ws", UPGRADE, "POST"),
        b"GET /ws HTTP/1.0\r\n" + HOST + UPGRADE + b"\r\n",
    ],
)
async def test_what_is_no_websocket_handshake_is_a_request(head: bytes) -> None:
    """Other upgrades are offers that a server may pass over."""
    async with serving(Echo(), upgrade=shout) as world:
        client = await world.connect()
        await client.send(head)
        assert (await client.response()).status == 200
    assert world.port.counters.upgrades == 0


async def test_without_a_handler_the_app_is_asked() -> None:
    """It can say that there is no such thing."""
    async with serving(Echo()) as world:
        assert (await world.get("/ws", UPGRADE)).headers["path"] == "/ws"


@pytest.mark.parametrize("more", [b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n"])
async def test_a_handshake_with_a_body_is_refused(more: bytes) -> None:
    """Nobody could tell where the new protocol begins."""
    seen: list[Any] = []

    async def handler(upgrade: Upgrade) -> None:
        seen.append(upgrade)

    async with serving(Echo(), upgrade=handler) as world:
        assert (await world.get("/ws", UPGRADE + more)).code == "BAD_REQUEST"
    assert seen == []


async def test_a_socket_can_be_written_to_without_waiting() -> None:
    """The raw socket under the stream is the one that a broadcast uses."""

    async def handler(upgrade: Upgrade) -> None:
        assert upgrade.socket is not None
        assert upgrade.socket.family == socket.AF_INET
        await upgrade.socket.send(b"raw")

    async with serving(Echo(), upgrade=handler) as world:
        client = await world.connect()
        await client.send(request("/ws", UPGRADE))
        assert await client.rest() == b"raw"
