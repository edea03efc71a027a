"""Crowds of peers that want as much of a server as they can get, and a quiet client among them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import cbor2
import trio

from tests.runtime.server.process import ServerProcess
from tests.runtime.websocket.raw_peer import HANDSHAKE, masked

BODY = 1_000_000
LINES = b"POST /runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
GONE = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)
# What a peer of each kind sends, at first and then a byte now and then. It reads nothing.
Kinds = Mapping[str, tuple[bytes, bytes]]


def kinds(run_id: str) -> Kinds:
    """Give all kinds of peers; the run has put out some MiB."""
    exports = {"run_id": run_id, "limit": 500}
    json_calls = _text({"id": n, "call": "runs.export", "args": exports} for n in range(30))
    cbor_calls = _binary({"id": n, "call": "runs.export", "args": exports} for n in range(30))
    lists = _text({"id": n, "call": "runs.list", "args": {"limit": 500}} for n in range(1000))
    values = _text({"id": n, "call": "x", "args": {"x": [[]] * 15_000}} for n in range(30))
    follows = _text({"id": n, "follow": {"channel": "log"}} for n in range(100))
    ws = HANDSHAKE % (b"/ws", b"")
    cbor = HANDSHAKE % (b"/ws", b"sec-websocket-protocol: perdure.v1+cbor\r\n")
    export = f"GET /runs/{run_id}/export?limit=500 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    return {
        "answers in JSON": (ws + json_calls, b""),
        "answers in CBOR": (cbor + cbor_calls, b""),
        "answers over HTTP": (export * 20, b""),
        "pipelined calls": (ws + lists, b""),
        "calls of many values": (ws + values, b""),
        "followers": (ws + follows, b""),
        "followers over HTTP": (
            b"GET /events/log HTTP/1.1\r\nhost: localhost\r\nx: %b\r\n\r\n" % (b"a" * 30_000),
            b"",
        ),
        "bodies": (LINES + b"content-length: %d\r\n\r\n" % BODY + b" " * (BODY - 5000), b" "),
        "heads": (b"GET / HTTP/1.1\r\nx: " + b"a" * 32_000, b"a"),
        "messages": (ws + masked(1, b" " * BODY)[:-5000], b" "),
    }


def _text(messages: object) -> bytes:
    return b"".join(masked(1, json.dumps(each).encode()) for each in messages)  # type: ignore[attr-defined]


def _binary(messages: object) -> bytes:
    return b"".join(masked(2, cbor2.dumps(each)) for each in messages)  # type: ignore[attr-defined]


@asynccontextmanager
async def crowd(port: int, count: int, kind: tuple[bytes, bytes]) -> AsyncIterator[None]:
    """Let so many peers of a kind do their worst for the length of a block; they come back."""
    first, then = kind

    async def peer() -> None:
        while True:
            with suppress(*GONE):
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                async with stream:
                    await stream.send_all(first)
                    while True:
                        await trio.sleep(0.5)
                        await stream.send_all(then or masked(10, b""))
            await trio.sleep(0.2)

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(peer)
        yield
        nursery.cancel_scope.cancel()


def figures(running: ServerProcess) -> dict[str, float]:
    """Give the figures of a server."""
    with urlopen(running.url + "/metrics", timeout=30) as response:  # noqa: S310 - our own
        lines = response.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def memory_peak(running: ServerProcess) -> int:
    """Give the most bytes of memory that a server has had so far."""
    status = Path(f"/proc/{running.process.pid}/status").read_text("utf-8")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


async def latencies(ask: Callable[[], object], seconds: float) -> list[float]:
    """Ask again and again for so long; give how long each answer took."""
    took, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic()
        await trio.to_thread.run_sync(ask)
        took.append(time.monotonic() - begun)
        await trio.sleep(0.05)
    return took
