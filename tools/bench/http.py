"""HTTP: what a request costs the server, beside the same Starlette app under another server."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from tools.bench.benchmark import Benchmark, Figure, Setting, Sides, Target
from tools.bench.measure import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

_REQUESTS: Final = 3_200
_CONNECTIONS: Final = 32
_WARM: Final = 10  # requests of each connection before the clock starts
_PATIENCE: Final = 30.0  # seconds for an answer
_MOST: Final = 64 << 10  # bytes of a response


class _Server:
    """A server in a process of its own, and connections to it."""

    def __init__(self, name: str, stack: ExitStack) -> None:
        """Start it and connect."""
        command = [sys.executable, "-m", "tools.bench.http_server", name]
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(process.terminate)
        assert process.stdout is not None  # noqa: S101 - it was asked for
        self._port = int(process.stdout.readline())
        address = ("127.0.0.1", self._port)
        self._connections = [
            stack.enter_context(socket.create_connection(address, _PATIENCE))
            for _ in range(_CONNECTIONS)
        ]
        self._ask(_WARM)

    def round(self, requests: int) -> Sample:
        """Ask so many times, on all connections at once; the CPU time is the server's."""
        each = max(1, requests // _CONNECTIONS)
        cpu, wall = self._cpu(), time.perf_counter()
        self._ask(each)
        wall, cpu = time.perf_counter() - wall, self._cpu() - cpu
        count = each * _CONNECTIONS
        return Sample(wall=wall, cpu=cpu, count=count, figures={"per_cpu": count / cpu})

    def _ask(self, times: int) -> None:
        request = self._request("/")
        for _ in range(times):
            for connection in self._connections:
                connection.sendall(request)
            for connection in self._connections:
                self._answer(connection)

    def _cpu(self) -> float:
        connection = self._connections[0]
        connection.sendall(self._request("/cpu"))
        return float(self._answer(connection))

    def _request(self, path: str) -> bytes:
        return (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nAccept: */*\r\n\r\n".encode()
        )

    @staticmethod
    def _answer(connection: socket.socket) -> bytes:
        """Read a response whose length is given, and give its body."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += _received(connection)
        head, _, body = data.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += _received(connection)
        return body


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(_MOST)
    if not data:
        raise RuntimeError("the server has closed a connection")
    return data


@contextmanager
def _servers(setting: Setting) -> Iterator[Sides]:
    """Run both servers side by side; whichever is not asked uses no CPU."""
    requests = setting.size(_REQUESTS, _CONNECTIONS)
    with ExitStack() as stack:
        ours, other = _Server("port", stack), _Server("hypercorn", stack)
        yield Sides(partial(ours.round, requests), partial(other.round, requests))


HTTP: Final = Benchmark(
    name="http",
    title="small JSON responses of a Starlette app on 32 connections; CPU of the server only",
    baseline="the same app under hypercorn's Trio worker",
    prepare=_servers,
    counted="requests",
    figures=[Figure("per_cpu", "requests per CPU-second", Target(">=", 2.0))],
)
