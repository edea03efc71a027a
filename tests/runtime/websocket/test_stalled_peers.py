"""Peers that stop reading: what they hold is bounded, and they find out why they were let go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
import trio
from trio.testing import MockClock

from perdure.runtime.kernel.budget import Budget
from perdure.runtime.websocket import SocketLimits, session
from perdure.runtime.websocket.frames import FRAGMENT, end_of_frame, fragments, framed
from perdure.runtime.websocket.wire import WireLimits
from tests.runtime.memory import without_collector
from tests.runtime.service import Service, service
from tests.runtime.websocket.harness import Server, serving, socket_pair
from tests.runtime.websocket.raw_peer import HANDSHAKE, Raw, masked, peer, works

IMPATIENT = SocketLimits(wire=WireLimits(send=0.3))
Streams = tuple[trio.abc.Stream, trio.abc.Stream]


async def tcp_pair() -> Streams:
    """Give two ends of a TCP connection on this machine."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        mine = await trio.open_tcp_stream(*listener.socket.getsockname()[:2])
        return mine, await listener.accept()


async def poured(s: Service, text: str = "x") -> str:
    """Give a run that has put out two pages of text."""
    run_id = (await s.start("pour", args={"items": 40, "size": 60_000, "text": text}))["run_id"]
    await s.finished(run_id)
    return run_id


async def gone(server: Server) -> None:
    """Wait until no connection is left."""
    with trio.fail_after(20):
        while server.sockets.connections:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.05)


@pytest.mark.parametrize("tcp", [True, False], ids=["tcp", "unix"])
@pytest.mark.parametrize("asked", ["call", "follow"])
async def test_a_peer_that_stops_reading_is_told_so_when_it_reads_again(
    asked: str, tcp: bool
) -> None:
    """Whole frames, then a Close with a code of its own, however full its socket was (R117)."""
    async with service() as s, serving(s, IMPATIENT) as server:
        run_id = await poured(s)
        streams = await tcp_pair() if tcp else socket_pair()
        async with peer(server, streams=streams) as raw:
            for number in range(8):
                follow = {"id": number, "follow": {"channel": "export"}}
                call = {"id": number, "call": "runs.export", "args": {"run_id": run_id}}
                ask = msgspec.json.encode(call if asked == "call" else follow)
                await raw.stream.send_all(masked(1, ask))
            await gone(server)
            with trio.fail_after(5):
                assert await raw.close_code() == 4008
                await raw.ends()
        assert server.budget.held == 0


async def test_a_live_follower_that_stops_reading_is_told_so() -> None:
    """One to whom events are pushed, as one that pulls them."""
    async with service() as s, serving(s, IMPATIENT) as server, peer(server) as raw:
        await raw.stream.send_all(masked(1, b'{"id":1,"follow":{"channel":"export"}}'))
        assert b"live" in (await raw.frame())[1]
        await poured(s)
        await gone(server)
        with trio.fail_after(5):
            assert await raw.close_code() == 4008
    assert server.budget.held == 0


async def test_a_silent_peer_is_told_why_it_is_left(autojump_clock: MockClock) -> None:
    """It may have slept; it comes back with its cursors."""
    async with service() as s, serving(s) as server, peer(server, real=False) as raw:
        assert await raw.close_code() == 4009
        await raw.ends()


@pytest.mark.parametrize("tcp", [True, False], ids=["tcp", "unix"])
async def test_a_peer_that_reads_slowly_and_says_nothing_is_there(
    tcp: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written into its frames, and it is not taken for silent while it takes them."""
    monkeypatch.setattr(session, "PING_AFTER", 0.1)
    monkeypatch.setattr(session, "GONE_AFTER", 0.3)
    async with service() as s, serving(s) as server:
        run_id = await poured(s)
        streams = await tcp_pair() if tcp else socket_pair()
        async with peer(server, streams=streams) as raw:
            for number in range(8):
                call = {"id": number, "call": "runs.export", "args": {"run_id": run_id}}
                await raw.stream.send_all(masked(1, msgspec.json.encode(call)))
            answers = frames = 0
            with trio.fail_after(20):
                while answers < 8:
                    opcode, payload = await raw.frame()
                    if opcode in {0, 1}:
                        answers += payload.endswith(b"}") and b'"cursor"' in payload
                        frames += 1
                        await trio.sleep(0.1 if frames < 16 else 0)
                    else:
                        assert opcode == 9, payload  # a Ping between two answers
                        await raw.stream.send_all(masked(10, payload))


async def test_what_was_written_is_told_though_there_is_no_room_for_the_answer() -> None:
    """A caller that hears OVERLOADED asks again, and would do it twice."""
    create = {"plugin_id": "test", "entry_id": "greet", "args": {}}
    told = 0
    async with service() as s:
        for share in range(6400, 9000, 100):
            before = len((await s.call("runs.list", {"limit": 500}))["runs"])
            async with serving(s, budget=Budget(4 * share)) as server, peer(server) as raw:
                ask = msgspec.json.encode({"id": 1, "call": "runs.create", "args": create})
                with suppress(trio.BrokenResourceError):
                    await raw.stream.send_all(masked(1, ask))
                with trio.fail_after(5):
                    _, payload = await raw.frame()
            created = len((await s.call("runs.list", {"limit": 500}))["runs"]) - before
            assert created == (b'"ok"' in payload), (share, payload)
            told += created
    assert told


@pytest.mark.parametrize("size", [0, 1, FRAGMENT, FRAGMENT + 1, 5 * FRAGMENT + 7])
def test_frames_are_cut_where_a_close_may_come(size: int) -> None:
    """Of any message; from any place in its frames, the end of the frame is found."""
    message = bytes(size)
    frames = list(fragments(2, message))
    assert framed(2, message) == b"".join(frames)
    assert [frame[0] for frame in frames] == _firsts(len(frames))
    ends = [sum(map(len, frames[: n + 1])) for n in range(len(frames))]
    for place in {1, *ends, *(end - 1 for end in ends), ends[0] // 2 + 1}:
        assert end_of_frame(framed(2, message), place) == min(end for end in ends if end >= place)
    assert end_of_frame(framed(2, message), 0) == 0


def _firsts(count: int) -> list[int]:
    return [0x82] if count == 1 else [0x02, *[0x00] * (count - 2), 0x80]


# Memory


@asynccontextmanager
async def greedy(server: Server, count: int, *asks: bytes) -> AsyncIterator[list[Raw]]:
    """Connect peers that ask for much and read nothing."""
    peers = []
    for _ in range(count):
        mine, theirs = socket_pair()
        server.nursery.start_soon(server.accept, theirs)
        await mine.send_all(HANDSHAKE % (b"/ws", b"") + b"".join(masked(1, ask) for ask in asks))
        peers.append(Raw(mine))
    try:
        yield peers
    finally:
        for raw in peers:
            await trio.aclose_forcefully(raw.stream)


@pytest.mark.parametrize("text", ["x", "\x01"], ids=["text", "text that swells in JSON"])
async def test_answers_that_nobody_takes_stay_within_the_budget(text: str) -> None:
    """Counted as they are sent, not as they are stored; a quiet client is served meanwhile."""
    budget = Budget(32 << 20)
    async with service() as s, serving(s, budget=budget) as server:
        run_id = await poured(s, text)
        asks = [
            msgspec.json.encode({"id": n, "call": "runs.export", "args": {"run_id": run_id}})
            for n in range(20)
        ]
        async with greedy(server, 12, *asks):
            await trio.testing.wait_all_tasks_blocked(0.1)
            assert 8 << 20 < budget.held <= budget.limit
            await works(server)
        await gone(server)
    assert budget.held == 0


async def test_messages_that_never_end_stay_within_the_budget() -> None:
    """Whoever sends the first part too much is let go: it may try again later."""
    budget = Budget(2 << 20)
    async with service() as s, serving(s, budget=budget) as server:
        part = masked(1, b"x" * 200_000)[:-1]
        async with greedy(server, 12) as peers:
            for raw in peers:
                await raw.stream.send_all(part)
            with trio.fail_after(20):
                while not 0 < server.sockets.connections < 12:  # noqa: ASYNC110 - nobody tells
                    await trio.sleep(0.05)
                while budget.held < server.sockets.connections * 199_999:  # noqa: ASYNC110
                    await trio.sleep(0.05)
            assert budget.held <= budget.limit
            await works(server)
        await gone(server)
    assert budget.held == 0


async def test_a_peer_whose_message_does_not_fit_may_try_again_later() -> None:
    """It is told so, in the middle of its message."""
    async with service() as s, serving(s, budget=Budget(1 << 20)) as server, peer(server) as raw:
        await raw.stream.send_all(masked(1, b"x" * 200_000))
        with trio.fail_after(5):
            assert await raw.close_code() == 1013
            await raw.ends()
    assert server.budget.held == 0


async def test_what_a_connection_held_is_free_when_it_ends() -> None:
    """At once, and not when the garbage collector comes by: nothing refers to itself."""
    async with service() as s, serving(s, budget=Budget(4 << 20)) as server:
        part = masked(1, b" " * 900_000)
        with without_collector() as memory:
            for size in (300_000, 800_000) * 4:  # of which the second does not fit
                async with peer(server) as raw:
                    with suppress(trio.BrokenResourceError):
                        await raw.stream.send_all(part[:size])
                        await raw.close_code() if size > 500_000 else await trio.sleep(0.05)
                await gone(server)
            assert memory() < 300_000


async def test_a_message_has_to_come_at_some_pace(autojump_clock: MockClock) -> None:
    """Its first part is kept in memory until it is whole."""
    async with service() as s, serving(s) as server, peer(server, real=False) as raw:
        message = masked(1, b" " * 200_000)
        for place in range(0, len(message), 100):
            try:
                await raw.stream.send_all(message[place : place + 100])
            except trio.BrokenResourceError:
                break
            await trio.sleep(1)
        assert trio.current_time() < 30
        assert await raw.close_code() == 1008
    assert server.budget.held == 0
