"""The remote side against servers that follow a script: drains, refusals, silence."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from contextlib import aclosing, asynccontextmanager
from typing import Any

import cbor2
import pytest
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Request

from perdure.runtime.client.remote import Remote
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.socket_protocol import CBOR as SUBPROTOCOL
from tests.runtime.client.sides import PATIENCE, remote_at

CALL = "runs.list"  # it reads
UNAVAILABLE = {"code": "UNAVAILABLE", "message": "not now", "details": None}


class Peer:
    """One connection, as the server has it."""

    def __init__(self, number: int, stream: trio.SocketStream) -> None:
        """Be the connection of this number, from 1."""
        self.number = number
        self._stream = stream
        self._half = WSConnection(ConnectionType.SERVER)

    async def messages(self) -> AsyncGenerator[dict[str, Any]]:
        """Shake hands, then give what the client says."""
        whole = b""
        while data := await self._stream.receive_some(65536):
            self._half.receive_data(data)
            for event in self._half.events():
                if isinstance(event, Request):
                    accept = AcceptConnection(subprotocol=SUBPROTOCOL)
                    await self._stream.send_all(self._half.send(accept))
                elif isinstance(event, BytesMessage):
                    whole += event.data
                    if event.message_finished:
                        yield cbor2.loads(whole)
                        whole = b""
                elif isinstance(event, CloseConnection):
                    return

    async def say(self, *messages: dict[str, Any], close: bool = False) -> None:
        """Send messages, and maybe a Close, in one piece."""
        data = b"".join(self._half.send(BytesMessage(data=cbor2.dumps(m))) for m in messages)
        await self._stream.send_all(
            data + (self._half.send(CloseConnection(1012)) if close else b"")
        )

    async def leave(self) -> None:
        """Cut the connection."""
        await self._stream.aclose()


Script = Callable[[Peer, dict[str, Any]], Awaitable[None]]


@asynccontextmanager
async def scripted(
    script: Script, patience: float, refusing: Collection[int] = (), **options: Any
) -> AsyncIterator[tuple[Remote, list[Peer]]]:
    """A client of a server that answers each message by a script, and refuses some connections."""
    peers: list[Peer] = []

    async def serve(stream: trio.SocketStream) -> None:
        peers.append(peer := Peer(len(peers) + 1, stream))
        if peer.number in refusing:
            await stream.aclose()
            return
        try:
            async with aclosing(peer.messages()) as messages:
                async for message in messages:
                    await script(peer, message)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        await stream.aclose()

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        async with remote_at(url, patience=patience, **options) as client:
            with trio.fail_after(PATIENCE):
                yield client, peers
        nursery.cancel_scope.cancel()


async def test_a_close_in_the_same_bytes_as_events_is_answered_and_the_follow_goes_on() -> None:
    """The server waits for the answer to its Close; the client does not wait for more bytes."""

    async def script(peer: Peer, message: dict[str, Any]) -> None:
        if "follow" in message and peer.number == 1:
            ended = {"id": message["id"], "end": "draining", "cursor": "1"}
            await peer.say({"id": message["id"], "events": ["a"], "cursor": "1"}, ended, close=True)
        elif "follow" in message:
            assert message["after"] == "1"
            await peer.say({"id": message["id"], "events": ["b"], "cursor": "2"})
        elif "call" in message:
            await peer.say({"id": message["id"], "ok": {"number": peer.number}})

    async with scripted(script, 5) as (client, _), client.follow("log") as follow:
        seen = [event for _ in range(2) for event in (await anext(follow)).events]
        assert await client.call(CALL, {}) == {"number": 2}
    assert seen == ["a", "b"]


async def test_a_cancelled_wait_loses_no_credit_on_a_connection() -> None:
    """The server hears of the credit for what was taken, once."""
    heard: list[int] = []
    told = trio.Event()

    async def script(peer: Peer, message: dict[str, Any]) -> None:
        if "follow" in message:
            await peer.say({"id": message["id"], "events": ["a", "b"], "cursor": "2"})
        elif "credit" in message:
            heard.append(message["credit"])
            told.set()

    async with scripted(script, 5) as (client, _), client.follow("log", limit=2) as follow:
        with trio.move_on_after(0):
            await anext(follow)
        assert (await anext(follow)).events == ["a", "b"]
        await told.wait()
    assert heard == [2]


@pytest.mark.parametrize("code", ["UNAVAILABLE", "OVERLOADED"])
async def test_a_follow_that_is_refused_for_now_is_given_up_and_leaves_the_others_alone(
    code: str,
) -> None:
    """It is asked for again with delays, on the same connection, until patience ends."""
    asked = 0

    async def script(peer: Peer, message: dict[str, Any]) -> None:
        nonlocal asked
        if message.get("follow") == {"channel": "runs"}:
            asked += 1
            await peer.say({"id": message["id"], "error": {**UNAVAILABLE, "code": code}})
        elif "follow" in message:
            await peer.say({"id": message["id"], "events": ["a"], "cursor": "1"})

    async with scripted(script, 0.5) as (client, peers), client.follow("log") as other:
        with pytest.raises(OperationError, match="not now"):
            async with client.follow("runs"):
                pass
        assert (await anext(other)).events == ["a"]
        assert len(peers) == 1
    assert 1 < asked < 12


async def test_a_server_that_only_shakes_hands_is_given_up() -> None:
    """A handshake is no use: delays grow over the connections, and patience ends."""

    async def script(peer: Peer, message: dict[str, Any]) -> None:
        await peer.leave()

    async with scripted(script, 0.5) as (client, peers):
        with pytest.raises(OperationError) as refused:
            async with client.follow("log"):
                pass
    assert refused.value.code == "UNAVAILABLE"
    assert len(peers) < 12


async def test_a_reading_call_that_was_long_under_way_is_repeated_after_a_loss() -> None:
    """Patience counts from each loss, not from the call."""

    async def script(peer: Peer, message: dict[str, Any]) -> None:
        if peer.number < 3:
            await trio.sleep(0.6)
            await peer.leave()
        await peer.say({"id": message["id"], "ok": {"number": peer.number}})

    async with scripted(script, 0.5) as (client, _):
        assert await client.call(CALL, {}) == {"number": 3}


async def test_a_server_that_makes_no_sense_is_a_lost_connection() -> None:
    """An id that no client has given: the call is asked again elsewhere."""

    async def script(peer: Peer, message: dict[str, Any]) -> None:
        await peer.say({"id": [1] if peer.number == 1 else message["id"], "ok": {}})

    async with scripted(script, 5) as (client, _):
        assert await client.call(CALL, {}) == {}


async def test_people_are_told_that_the_server_is_lost_and_found() -> None:
    """Once each, however often it is tried meanwhile."""
    told: list[str] = []

    async def script(peer: Peer, message: dict[str, Any]) -> None:
        if peer.number == 1:
            await peer.leave()
        else:
            await peer.say({"id": message["id"], "ok": {}})

    async with scripted(script, 5, (2, 3, 4), tell=told.append) as (client, peers):
        assert await client.call(CALL, {}) == {}
    assert len(peers) == 5
    assert told[0].startswith("Warning: the server at http://127.0.0.1:")
    assert told[0].endswith(" does not answer; trying again for 5 s.")
    assert told[1:] == ["Connected again."]


async def test_a_short_break_is_not_worth_a_word() -> None:
    """The first attempt finds the server again."""
    told: list[str] = []

    async def script(peer: Peer, message: dict[str, Any]) -> None:
        if peer.number == 1:
            await peer.leave()
        else:
            await peer.say({"id": message["id"], "ok": {}})

    async with scripted(script, 5, tell=told.append) as (client, peers):
        await client.call(CALL, {})
    assert (len(peers), told) == (2, [])


async def test_a_server_that_becomes_silent_is_left_for_another_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that lives pings; one that does not even do that is lost."""
    monkeypatch.setattr("perdure.runtime.client.remote_connection.SILENCE", 0.05)

    async def script(peer: Peer, message: dict[str, Any]) -> None:
        if peer.number > 1:
            await peer.say({"id": message["id"], "ok": {"number": peer.number}})

    async with scripted(script, 5) as (client, _):
        assert (await client.call(CALL, {}))["number"] > 1


async def test_a_server_that_takes_nothing_is_left_for_another_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its buffers are full: what does not leave in time is sent on another connection."""
    monkeypatch.setattr("perdure.runtime.client.remote_connection.SENDING", 0.3)
    large = {"beginning": "x" * 900_000}
    answers: list[Any] = []

    async def script(peer: Peer, message: dict[str, Any]) -> None:
        if peer.number == 1:
            await trio.sleep_forever()
        await peer.say({"id": message["id"], "ok": {"number": peer.number}})

    async with scripted(script, 5) as (client, _), trio.open_nursery() as nursery:

        async def call() -> None:
            answers.append(await client.call("runs.find", large))

        for _ in range(10):
            nursery.start_soon(call)
    assert [answer["number"] > 1 for answer in answers] == [True] * 10


async def test_a_call_that_is_cancelled_while_it_is_sent_spoils_nothing() -> None:
    """Its message leaves as a whole: half a frame would make nonsense of all that follow."""
    large = {"beginning": "x" * 900_000}
    heard: list[int] = []

    async def script(peer: Peer, message: dict[str, Any]) -> None:
        heard.append(len(message["args"].get("beginning", "")))
        await peer.say({"id": message["id"], "ok": {}})

    async with scripted(script, 5) as (client, peers):
        for _ in range(20):
            with trio.move_on_after(0.001):
                await client.call("runs.find", large)
        assert await client.call(CALL, {}) == {}
        assert len(peers) == 1, "the connection is the first"
    assert heard[-1] == 0
    assert {900_000} >= set(heard[:-1])
    assert len(heard) > 1
