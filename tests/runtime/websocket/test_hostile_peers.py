"""Peers that are broken, slow or hostile hurt only themselves."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest
import trio
from trio.testing import MockClock

from perdure.runtime.kernel.principal import LOCAL, Principal
from perdure.runtime.websocket import SocketLimits
from perdure.runtime.websocket.conversation import ConversationLimits
from perdure.runtime.websocket.frames import FrameLimits
from perdure.runtime.websocket.wire import WireLimits
from tests.runtime.service import service
from tests.runtime.websocket.harness import Server, serving, socket_pair
from tests.runtime.websocket.raw_peer import HANDSHAKE, Raw, masked, peer, works


async def test_a_ping_during_our_close_ends_one_connection_only() -> None:
    """It is legal, and took a whole server down: never again."""
    async with service() as s, serving(s) as server, peer(server) as raw:
        server.sockets.drain()
        while (await raw.frame())[0] != 8:
            pass
        await raw.stream.send_all(masked(9, b"ping"))
        await raw.ends()
        server.sockets._draining = False
        await works(server)
        assert server.sockets.connections == 0


async def test_whoever_comes_while_the_server_drains_is_told(autojump_clock: MockClock) -> None:
    """Also a peer whose handshake had begun before that."""
    async with service() as s, serving(s) as server:

        def drain(_: object) -> Principal:
            """Happen between the handshake and the session."""
            server.sockets.drain()
            return LOCAL

        server.sockets._principal_of = drain
        async with peer(server, real=False) as raw:
            with trio.fail_after(5):
                assert await raw.close_code() == 1012


@pytest.mark.parametrize("real", [True, False], ids=["socket", "as under TLS"])
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (masked(1, b"x" * 2000), 1009),
        (b"\x81\xff" + b"\x7f" * 12, 1009),
        (masked(1, b"", fin=False) + masked(0, b"", fin=False) * 100, 1008),
        (masked(1, b"\xff\xfe"), 1007),
        (masked(3, b""), 1002),
        (masked(0, b"never begun"), 1002),
        (b"\x81\x05naked", 1002),
        (masked(9, b"x" * 126), 1002),
    ],
    ids=["large", "enormous", "fragments", "utf8", "opcode", "continuation", "unmasked", "ping"],
)
async def test_broken_frames_end_their_connection(data: bytes, code: int, real: bool) -> None:
    """With a code that says why, also where there is no bare socket; others go on."""
    limits = SocketLimits(wire=WireLimits(frames=FrameLimits(message_bytes=1000)))
    async with service() as s, serving(s, limits) as server, peer(server, real=real) as raw:
        await raw.stream.send_all(data)
        with trio.fail_after(5):
            assert await raw.close_code() == code
            await raw.ends()
        await works(server)


async def test_binary_where_text_is_spoken_is_told() -> None:
    """The connection can go on."""
    async with service() as s, serving(s) as server, peer(server) as raw:
        await raw.stream.send_all(masked(2, b"\xa0"))
        opcode, answer = await raw.frame()
        assert opcode == 1
        assert b"VALIDATION_ERROR" in answer


async def test_frames_come_no_faster_than_allowed(autojump_clock: MockClock) -> None:
    """A flood waits; it takes no more than its share."""
    limits = SocketLimits(wire=WireLimits(frames=FrameLimits(rate=100)))
    async with service() as s, serving(s, limits) as server, peer(server, real=False) as raw:
        began = trio.current_time()
        await raw.stream.send_all(masked(9, b"") * 1000)
        for _ in range(1000):
            assert (await raw.frame())[0] == 10
        assert 8.5 < trio.current_time() - began < 11


async def test_a_silent_peer_is_asked_and_then_left(autojump_clock: MockClock) -> None:
    """One that answers stays; one that does not goes."""
    async with service() as s, serving(s) as server, peer(server, real=False) as raw:
        for _ in range(10):
            assert (await raw.frame())[0] == 9
            await raw.stream.send_all(masked(10, b""))
        assert server.sockets.connections == 1
        await raw.ends()
        assert server.sockets.connections == 0


async def test_a_handshake_that_does_not_come_is_not_waited_for(
    autojump_clock: MockClock,
) -> None:
    """Nobody holds a connection by doing nothing."""
    async with service() as s, serving(s) as server:
        mine, theirs = trio.testing.memory_stream_pair()
        server.nursery.start_soon(server.accept, theirs)
        await mine.send_all(
            b"GET /ws HTTP/1.1\r\nHost: localhost\r\nSec-WebSocket-Key: x\r\n"
            b"Sec-WebSocket-Version: 13\r\n\r\n"
        )
        with trio.fail_after(20):
            await Raw(mine).ends()


@pytest.mark.parametrize(
    ("path", "more", "status", "code"),
    [
        (b"/other", b"", b"404", b"NOT_FOUND"),
        (b"/ws", b"Sec-WebSocket-Protocol: soap\r\n", b"422", b"VALIDATION_ERROR"),
        (b"/ws", b"Sec-WebSocket-Version: 8\r\n", b"426", b"UPGRADE_REQUIRED"),
    ],
)
async def test_what_is_not_spoken_here_is_refused(
    path: bytes, more: bytes, status: bytes, code: bytes, autojump_clock: MockClock
) -> None:
    """Before anything is upgraded, with an error of the table."""
    async with service() as s, serving(s) as server:
        answer = await refused(server, HANDSHAKE % (path, more))
        assert answer.split()[1] == status
        assert b'{"error":{"code":"%b"' % code in answer


@pytest.mark.parametrize("version", [b"", b"Sec-WebSocket-Version: 8\r\n"])
async def test_a_handshake_of_another_version_is_told_ours(
    version: bytes, autojump_clock: MockClock
) -> None:
    """Also one that names none."""
    async with service() as s, serving(s) as server:
        ours = b"Sec-WebSocket-Version: 13\r\n"
        answer = await refused(server, HANDSHAKE.replace(ours, version) % (b"/ws", b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 426 ")
        assert b"\r\nsec-websocket-version: 13" in head
        assert b"\r\nupgrade: websocket" in head
        assert msgspec.json.decode(body)["error"]["code"] == "UPGRADE_REQUIRED"


async def test_a_handshake_without_a_key_is_told_what_it_lacks(
    autojump_clock: MockClock,
) -> None:
    """Like every error, in words."""
    async with service() as s, serving(s) as server:
        answer = await refused(server, b"GET /ws HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer.split()[1] == b"400"


async def test_whoever_comes_too_much_or_too_late_is_told_when_to_come_again(
    autojump_clock: MockClock,
) -> None:
    """One connection too many is another error than a server that goes down."""
    limits = SocketLimits(connections=1)
    async with service() as s, serving(s, limits) as server, peer(server, real=False):
        many = await refused(server, HANDSHAKE % (b"/ws", b""))
        server.sockets.drain()
        late = await refused(server, HANDSHAKE % (b"/ws", b""))
    assert b'"TOO_MANY_CONNECTIONS"' in many
    assert b'"UNAVAILABLE"' in late
    for answer in (many, late):
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 1\r\n" in answer


async def refused(server: Server, handshake: bytes) -> bytes:
    """Send a handshake, and give the whole answer."""
    mine, theirs = trio.testing.memory_stream_pair()
    server.nursery.start_soon(server.accept, theirs)
    await mine.send_all(handshake)
    return b"".join([bytes(part) async for part in mine])


async def test_so_many_calls_and_follows_and_no_more(autojump_clock: MockClock) -> None:
    """What is too much is refused at once, and only that."""
    async with service() as s, serving(s) as server, server.connect() as client:
        nap = {"plugin_id": "test", "entry_id": "nap", "args": {"seconds": 5}, "mode": "sync"}
        for number in range(1001):
            await client.send({"id": number, "call": "runs.create", "args": nap})
        answer = await client.receive()
        assert (answer["id"], answer["error"]["code"]) == (1000, "OVERLOADED")
        for number in range(101):
            await client.send({"id": f"f{number}", "follow": {"channel": "export"}})
        refused = [await client.receive() for _ in range(101)]
        assert [m["id"] for m in refused if "error" in m] == ["f100"]


async def test_a_stalled_follower_is_cut_off_and_delays_nobody() -> None:
    """It costs little while it lasts; whoever reads gets everything meanwhile (R117)."""
    limits = SocketLimits(wire=WireLimits(send=1.0))
    async with service() as s, serving(s, limits) as server, peer(server) as stalled:
        follow = b'{"id":1,"follow":{"channel":"export"}}'
        await stalled.stream.send_all(masked(1, follow))
        async with server.connect(streams=socket_pair()) as client:
            await client.send({"id": 1, "follow": {"channel": "export"}})
            await client.until("live")
            count = 0
            with trio.fail_after(30):
                for _ in range(40):
                    await s.start("pour", args={"items": 20, "size": 2000})
                while count < 800:
                    count += len((await client.receive()).get("events", ()))
                while server.sockets.connections > 1:  # noqa: ASYNC110 - nobody tells
                    await trio.sleep(0.1)
                assert "ok" in await client.call("runs.list")


async def test_a_follow_can_be_stopped_while_its_peer_does_not_read(
    autojump_clock: MockClock,
) -> None:
    """What was being sent comes whole, then the end, and the connection goes on."""
    async with service() as s, serving(s) as server:
        await s.finished((await s.start("pour", args={"items": 50, "size": 2000}))["run_id"])
        async with peer(server, streams=trio.testing.lockstep_stream_pair()) as raw:
            follow = b'{"id":1,"follow":{"channel":"export"}}'
            await raw.stream.send_all(masked(1, follow))
            await trio.sleep(1)  # the server has begun to send, and waits for us to take it
            await raw.stream.send_all(masked(1, b'{"id":1,"stop":true}'))
            await trio.sleep(1)
            answer = b""
            while b'"end":"stopped"' not in answer:
                opcode, answer = await raw.frame()
                assert opcode == 1
            await raw.stream.send_all(masked(1, b'{"id":2,"call":"runs.list"}'))
            assert b'"ok"' in (await raw.frame())[1]


async def test_twenty_stalled_followers_cost_little() -> None:
    """Less than half a MiB each, however much there is to tell them (R117)."""
    async with service() as s, serving(s) as server:
        for _ in range(40):
            await s.finished((await s.start("pour", args={"items": 50, "size": 2000}))["run_id"])
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            async with _stalled(server, 20):
                with trio.move_on_after(2):
                    await trio.sleep_forever()
                used = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert used / 20 < 512 << 10


@asynccontextmanager
async def _stalled(server: Server, count: int) -> AsyncIterator[None]:
    streams = []
    for _ in range(count):
        mine, theirs = socket_pair()
        server.nursery.start_soon(server.accept, theirs)
        follow = masked(1, b'{"id":1,"follow":{"channel":"export"}}')
        await mine.send_all(HANDSHAKE % (b"/ws", b"") + follow)
        streams.append(mine)
    yield
    for stream in streams:
        await trio.aclose_forcefully(stream)


async def test_noise_ends_its_connection_only() -> None:
    """Whatever bytes come after the handshake."""
    async with service() as s, serving(s) as server:
        for _ in range(50):
            async with peer(server) as raw:
                await raw.stream.send_all(os.urandom(500))
        await works(server)


async def test_answers_that_nobody_takes_are_bounded() -> None:
    """Who asks and asks, and reads nothing, is listened to no longer (pitfall 6)."""
    async with service() as s, serving(s) as server, peer(server) as raw:
        for _ in range(20):
            await s.start("greet", task_id="t" * 200)
        asked = b"".join(
            masked(1, b'{"id":%d,"call":"runs.list"}' % number) for number in range(20_000)
        )
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            with trio.move_on_after(2):
                await raw.stream.send_all(asked)
                await trio.sleep_forever()
            used = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert used < 20 << 20
        await works(server)


async def test_a_read_waits_for_answers_that_are_not_taken(autojump_clock: MockClock) -> None:
    """So many are made at a time; a call that changes something does not wait for them."""
    limits = SocketLimits(conversation=ConversationLimits(reads=2))
    async with service() as s, serving(s, limits) as server, server.connect() as client:
        for number in range(50):
            await client.send({"id": number, "call": "runs.list"})
        create = {"plugin_id": "test", "entry_id": "greet", "args": {}}
        await client.send({"id": "new", "call": "runs.create", "args": create})
        answers = [await client.receive() for _ in range(51)]
        assert {answer["id"] for answer in answers} == {*range(50), "new"}
        assert all("ok" in answer for answer in answers)


async def test_a_slow_peer_is_served_as_long_as_it_takes_something() -> None:
    """However long a message lasts, and however many wait behind it."""
    limits = SocketLimits(wire=WireLimits(send=0.5))
    async with service() as s, serving(s, limits) as server, peer(server) as raw:
        run_id = (await s.start("pour", args={"items": 16, "size": 60_000}))["run_id"]
        await s.finished(run_id)
        ask = {"call": "runs.export", "args": {"run_id": run_id}}
        for number in range(3):
            await raw.stream.send_all(masked(1, msgspec.json.encode({"id": number, **ask})))
        got, began = 0, trio.current_time()
        while got < 3 * 16 * 60_000:
            got += len(await raw.stream.receive_some(64 << 10))
            await trio.sleep(0.05)
        assert trio.current_time() - began > 3 * limits.wire.send
        assert server.sockets.connections == 1


async def test_nothing_follows_a_close(autojump_clock: MockClock) -> None:
    """An answer that is ready later is not sent: RFC 6455, 5.5.1."""
    async with service() as s, serving(s) as server, peer(server, real=False) as raw:
        nap = {"plugin_id": "test", "entry_id": "nap", "args": {"seconds": 1}, "mode": "sync"}
        call = {"id": 1, "call": "runs.create", "args": nap}
        await raw.stream.send_all(masked(1, msgspec.json.encode(call)))
        await trio.sleep(0.5)
        server.sockets.drain()
        assert (await raw.frame())[0] == 8
        with pytest.raises(EOFError):  # after some seconds in which no Close has come back
            await raw.frame()
        assert [run["status"] for run in (await s.call("runs.list", {}))["runs"]] == ["succeeded"]


async def test_a_hundred_follows_of_one_stalled_peer_cost_little() -> None:
    """A few of them have a batch on its way; the others wait without one."""
    async with service() as s, serving(s) as server, peer(server) as raw:
        for _ in range(10):
            await s.finished((await s.start("pour", args={"items": 50, "size": 2000}))["run_id"])
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number in range(100):
                ask = {"id": number, "follow": {"channel": "log"}}
                await raw.stream.send_all(masked(1, msgspec.json.encode(ask)))
            with trio.move_on_after(2):
                await trio.sleep_forever()
            used = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert used < 4 << 20
        await works(server)


async def test_one_large_batch_costs_stalled_followers_no_more() -> None:
    """What is committed together is told in frames of a bounded size, which all share."""
    async with service() as s, serving(s) as server, _live(server, 20) as stalled:
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            run_id = (await s.start("pour", args={"items": 100, "size": 60_000}))["run_id"]
            await s.finished(run_id)
            await trio.testing.wait_all_tasks_blocked(0.05)
            used = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        log = 100 * 60_000 * 2  # it is in the store, and in the tail
        assert (used - log) / len(stalled) < 512 << 10


@asynccontextmanager
async def _live(server: Server, count: int) -> AsyncIterator[list[Raw]]:
    """Connect peers that follow, have caught up, and read no more."""
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(peer(server)) for _ in range(count)]
        for raw in peers:
            await raw.stream.send_all(masked(1, b'{"id":1,"follow":{"channel":"export"}}'))
            assert b"live" in (await raw.frame())[1]
        yield peers
