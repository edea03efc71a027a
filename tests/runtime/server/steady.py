"""A client that asks at a steady rate and costs little itself: bare HTTP on a few connections."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import trio

CONNECTIONS = 32
BODY = b'{"plugin_id": "demo", "entry_id": "count", "args": {"to": 1, "delay": 0}}'
REQUEST = (
    b"POST /runs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%b"
) % (len(BODY), BODY)


class Steady:
    """Creates short runs; knows their ids, and how long each took from when it was due."""

    def __init__(self, url: str) -> None:
        """Ask a server."""
        self._address = urlsplit(url)
        self.run_ids: list[str] = []
        self.took: list[float] = []
        self.seconds = 0.0  # that all of it took

    async def create(self, rate: int, seconds: float) -> None:
        """Create so many runs a second. A server that lags behind is not waited for."""
        count = round(rate * seconds)
        send, receive = trio.open_memory_channel[float](count)  # all may be due before any is done
        begin = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(CONNECTIONS):
                nursery.start_soon(self._work, receive.clone())
            receive.close()
            async with send:
                for number in range(count):
                    due = begin + number / rate
                    await trio.sleep_until(due)
                    send.send_nowait(due)
        self.seconds = trio.current_time() - begin
        self.took.sort()

    async def _work(self, dues: trio.MemoryReceiveChannel[float]) -> None:
        stream = await trio.open_tcp_stream(self._address.hostname or "", self._address.port or 0)
        async with dues, stream:
            async for due in dues:
                await stream.send_all(REQUEST)
                self.run_ids.append(await _created(stream))
                self.took.append(trio.current_time() - due)

    def stated(self, rate: int) -> str:
        """Say how it went."""
        p50, p99 = (self.took[int(len(self.took) * part)] * 1000 for part in (0.5, 0.99))
        reached = len(self.run_ids) / self.seconds
        return (
            f"{len(self.run_ids)} runs asked for at {rate}/s, created at {reached:.0f}/s;"
            f" creation p50 {p50:.1f} ms, p99 {p99:.1f} ms from when it was due"
        )


async def _created(stream: trio.SocketStream) -> str:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive_some()
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 202", b"HTTP/1.1 200")), head
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length:
        body += await stream.receive_some()
    return str(json.loads(body)["run_id"])
