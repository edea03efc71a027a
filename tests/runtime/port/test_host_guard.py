"""Host and Origin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.runtime.port import Gate
from tests.runtime.port.world import Echo, request, serving

OURS = Gate(hosts=["localhost", "[::1]", "Run.example:8443"], origins=["https://console.example"])


@pytest.mark.parametrize(
    ("host", "code"),
    [
        (b"localhost", None),
        (b"LocalHost:7373", None),
        (b"[::1]:80", None),
        (b"run.example:8443", None),
        (b"run.example", "HOST_REFUSED"),
        (b"run.example:8444", "HOST_REFUSED"),
        (b"127.0.0.1", "HOST_REFUSED"),
        (b"localhost.", "HOST_REFUSED"),
        (b"localhost.evil.example", "HOST_REFUSED"),
        (b"evil.example", "HOST_REFUSED"),
        (b"169.254.169.254", "HOST_REFUSED"),
        (b"*", "BAD_REQUEST"),
        (b"", "BAD_REQUEST"),
        (b"localhost:", "BAD_REQUEST"),
        (b"localhost:port", "BAD_REQUEST"),
        (b"localhost, evil.example", "BAD_REQUEST"),
        (b"user@localhost", "BAD_REQUEST"),
        (None, "BAD_REQUEST"),
    ],
)
def test_only_known_hosts_pass(host: bytes | None, code: str | None) -> None:
    """A name with any port, or with the port that is listed with it."""
    refusal = OURS.refuses(host)
    assert (refusal and refusal.code) == code


@pytest.mark.parametrize(
    ("scheme", "host", "origin", "passes"),
    [
        (b"http", b"localhost:7373", b"http://localhost:7373", True),
        (b"http", b"localhost", b"http://localhost:80", True),
        (b"http", b"localhost:80", b"http://localhost", True),
        (b"https", b"localhost", b"https://localhost:443", True),
        (b"http", b"[::1]:7373", b"http://[::1]:7373", True),
        (b"http", b"localhost:7373", b"HTTP://LOCALHOST:7373", True),
        (b"http", b"localhost:7373", b"https://console.example", True),
        (b"http", b"localhost:7373", None, True),
        (b"http", b"localhost:7373", b"http://localhost:7374", False),
        (b"http", b"localhost:7373", b"https://localhost:7373", False),
        (b"https", b"localhost", b"http://localhost", False),
        (b"http", b"localhost:7373", b"http://[::1]:7373", False),
        (b"http", b"localhost:7373", b"http://console.example", False),
        (b"http", b"localhost:7373", b"https://console.example.evil", False),
        (b"http", b"localhost:7373", b"http://localhost:7373/", False),
        (b"http", b"localhost:7373", b"http://localhost:7373@evil", False),
        (b"http", b"localhost:7373", b"null", False),
        (b"http", b"localhost:7373", b"", False),
        (b"http", b"localhost:7373", b"file://", False),
    ],
)
def test_an_origin_is_our_own_or_listed(
    scheme: bytes, host: bytes, origin: bytes | None, *, passes: bool
) -> None:
    """Scheme, host and port together, ports by their default; `null` is nobody's."""
    refusal = OURS.refuses(host, origin, scheme=scheme)
    assert (refusal is None) == passes
    assert refusal is None or refusal.code == "ORIGIN_REFUSED"


def test_a_gate_can_be_left_open() -> None:
    """Behind something that checks Host itself; origins are still compared."""
    gate = Gate(hosts=["*"])
    assert gate.refuses(b"anything.example") is None
    refusal = gate.refuses(b"anything.example", b"http://evil.example")
    assert refusal is not None
    assert refusal.code == "ORIGIN_REFUSED"


@given(st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_whatever_is_sent_has_an_answer(host: bytes, origin: bytes | None) -> None:
    """No bytes make the gate fail."""
    OURS.refuses(host, origin)


@pytest.mark.parametrize(
    ("more", "status", "code"),
    [
        (b"host: evil.example\r\n", 421, "HOST_REFUSED"),
        (b"host: localhost\r\norigin: http://evil.example\r\n", 403, "ORIGIN_REFUSED"),
    ],
)
@pytest.mark.parametrize("upgrade", [b"", b"connection: upgrade\r\nupgrade: websocket\r\n"])
async def test_the_gate_is_before_everything(
    more: bytes, status: int, code: str, upgrade: bytes
) -> None:
    """Neither app nor upgrade handler sees what is refused, and the connection ends."""
    echo = Echo()
    upgrades: list[object] = []

    async def handler(upgrade: object) -> None:
        upgrades.append(upgrade)

    async with serving(echo, memory=True, upgrade=handler) as world:
        client = await world.connect()
        await client.send(b"GET /ws HTTP/1.1\r\n" + more + upgrade + b"\r\n" + request())
        answer = await client.response()
        assert (answer.status, answer.code) == (status, code)
        await client.stream.send_eof()
        assert await client.closed()
    assert echo.scopes == upgrades == []
    assert world.port.counters.refused == {code: 1}


async def test_a_refused_head_request_gets_no_body() -> None:
    """HEAD has none, whoever answers."""
    async with serving(Echo(), memory=True) as world:
        client = await world.connect()
        await client.send(b"HEAD / HTTP/1.1\r\nhost: evil\r\n\r\n")
        await client.stream.send_eof()
        raw = await client.rest()
        assert raw.startswith(b"HTTP/1.1 421 ")
        assert raw.endswith(b"\r\n\r\n")
