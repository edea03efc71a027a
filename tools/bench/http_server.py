"""A process that serves one small Starlette app: ``... http_server port|hypercorn``.

It prints the number of its port, and serves until it is terminated.
"""

from __future__ import annotations

import socket
import sys
import time
from typing import TYPE_CHECKING

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from perdure.eventlog.env import RealEnv
from perdure.runtime.port import Port, PortLimits

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


async def hello(_: Request) -> Response:
    """Answer with a little JSON."""
    return JSONResponse({"hello": "world"})


async def cpu(_: Request) -> Response:
    """Answer with the CPU seconds of this process so far."""
    return PlainTextResponse(repr(time.process_time()))


APP = Starlette(routes=[Route("/", hello), Route("/cpu", cpu)])


async def by_port(listening: socket.socket) -> None:
    """Serve with our own server."""
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
    await Port(APP, limits=PortLimits(idle=3600), env=RealEnv()).serve([listener])


async def by_hypercorn(listening: socket.socket) -> None:
    """Serve with hypercorn's Trio worker."""
    config = Config()
    config.bind = [f"fd://{listening.fileno()}"]
    config.errorlog = None
    config.keep_alive_timeout = 3600  # it waits while the other side is measured
    config.keep_alive_max_requests = 1_000_000
    await serve(APP, config)  # type: ignore[arg-type]  # it knows only its own types of apps


def main() -> None:
    """Serve on a free port and print its number."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listening.getsockname()[1], flush=True)
    trio.run(by_port if sys.argv[1] == "port" else by_hypercorn, listening)


if __name__ == "__main__":
    main()
