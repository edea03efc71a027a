"""How follows end: with the cursor of what was sent, and of nothing else."""

from __future__ import annotations

import msgspec
import pytest
import trio
from trio.testing import MockClock

from perdure.runtime.websocket.wire import FrameWire
from tests.runtime.service import service
from tests.runtime.websocket.harness import ConnectionClosed, serving
from tests.runtime.websocket.raw_peer import masked, peer


async def test_a_follow_that_is_stopped_ends_where_it_was_told_to() -> None:
    """Also while the socket is full and others wait for their turn: nothing is passed over."""
    async with service() as s, serving(s) as server, peer(server) as raw:
        for _ in range(20):
            await s.finished((await s.start("pour", args={"items": 50, "size": 2000}))["run_id"])
        follows = range(4)
        for number in follows:
            ask = {"id": number, "follow": {"channel": "log"}}
            await raw.stream.send_all(masked(1, msgspec.json.encode(ask)))
        await trio.sleep(0.3)
        for number in follows:
            stop = {"id": number, "stop": True}
            await raw.stream.send_all(masked(1, msgspec.json.encode(stop)))
        await trio.sleep(0.3)
        seen: dict[int, list[int]] = {number: [] for number in follows}
        ended: dict[int, str] = {}
        with trio.fail_after(20):
            while len(ended) < len(follows):
                message = msgspec.json.decode((await raw.frame())[1])
                seen[message["id"]] += [event["position"] for event in message.get("events", ())]
                if "end" in message:
                    assert message["end"] == "stopped"
                    ended[message["id"]] = message["cursor"]
        for number, cursor in ended.items():
            place = await s.node.log.resolve(cursor)
            assert seen[number] == list(range(1, place.position + 1))


async def test_a_listing_that_breaks_off_has_no_cursor(autojump_clock: MockClock) -> None:
    """Whoever came back with one would never hear of the runs that were not listed."""
    async with service() as s, serving(s) as server, server.connect() as client:
        for _ in range(5):
            await s.start("nap", args={"seconds": 1000})
        await client.send({"id": 1, "follow": {"channel": "runs"}, "credit": 3})
        listed = await client.receive()
        assert (len(listed["events"]), listed["cursor"]) == (3, None)
        server.sockets.drain()
        assert await client.receive() == {"id": 1, "end": "draining", "cursor": None}


async def test_an_id_can_be_used_again_as_soon_as_its_end_is_heard(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a client that is faster than the task which told it."""
    send = FrameWire.send_message

    async def slowly(self: FrameWire, opcode: int, message: bytes) -> None:
        await send(self, opcode, message)
        if b'"end"' in message or b'"error"' in message:
            await trio.sleep(1)

    monkeypatch.setattr(FrameWire, "send_message", slowly)
    async with service() as s, serving(s) as server, server.connect() as client:
        for first in ({"channel": "log"}, {"channel": "nothing"}):
            await client.send({"id": 1, "follow": first})
            if first["channel"] == "log":
                await client.until("live")
                await client.send({"id": 1, "stop": True})
                await client.until("end")
            else:
                await client.until("error")
            await client.send({"id": 1, "follow": {"channel": "log"}, "credit": 1})
            await trio.sleep(5)
            await client.send({"id": 1, "credit": 100})
            await client.until("live")
            await client.send({"id": 1, "stop": True})
            await client.until("end")
            await trio.sleep(5)


async def test_credit_for_a_follow_that_broke_is_passed_over(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that were on their way meet nobody, and its id is free."""
    send = FrameWire.send_message

    async def breaking(self: FrameWire, opcode: int, message: bytes) -> None:
        if b'"live"' in message:
            monkeypatch.undo()
            raise trio.BrokenResourceError
        await send(self, opcode, message)

    monkeypatch.setattr(FrameWire, "send_message", breaking)
    async with service() as s, serving(s) as server, server.connect() as client:
        await client.send({"id": 1, "follow": {"channel": "log"}})
        await trio.sleep(1)
        await client.send({"id": 1, "credit": 5})
        await client.send({"id": 1, "stop": True})
        with trio.fail_after(5):
            assert "ok" in await client.call("runs.list")
            await client.send({"id": 1, "follow": {"channel": "log"}})
            await client.until("live")
        assert server.sockets.follows == 1


async def test_a_server_that_drains_waits_for_the_ends_and_for_nothing_else(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follow that begins meanwhile ends like all others."""
    send = FrameWire.send_message

    async def slowly(self: FrameWire, opcode: int, message: bytes) -> None:
        if b'"end"' in message:
            await trio.sleep(1)
        await send(self, opcode, message)

    monkeypatch.setattr(FrameWire, "send_message", slowly)
    async with service() as s, serving(s) as server, server.connect() as client:
        await client.send({"id": 1, "follow": {"channel": "log"}})
        await client.until("live")
        began = trio.current_time()
        server.sockets.drain()
        await trio.sleep(0.5)
        await client.send({"id": 2, "follow": {"channel": "log"}})
        with trio.fail_after(10):
            first, second = (await client.until("end"))[-1], (await client.until("end"))[-1]
            assert (first["id"], first["end"]) == (1, "draining")
            assert (second["id"], second["end"]) == (2, "draining")
            with pytest.raises(ConnectionClosed):
                await client.receive()
        assert trio.current_time() - began == pytest.approx(2.0)
