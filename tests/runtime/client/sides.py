"""The three sides of the port on one log, and a proxy that cuts connections."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from perdure.eventlog.env import RealEnv
from perdure.runtime.client.address import Address, Named
from perdure.runtime.client.beside import open_beside
from perdure.runtime.client.client import Client, Delivery
from perdure.runtime.client.embedded import Embedded
from perdure.runtime.client.remote import Remote, open_remote
from perdure.runtime.features import FEATURES
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.node import Node
from perdure.runtime.kernel.principal import LOCAL, Permission
from tests.runtime.server.here import Here, server_here

READING = frozenset(
    row.name for row in FEATURES.operations.values() if row.permission is Permission.READ
)
PATIENCE = 30.0  # seconds that anything here may take
Opening = Callable[[Here, Path], AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def embedded(here: Here, path: Path) -> AsyncIterator[Client]:
    """The side of the process that holds the log."""
    yield Embedded(here.node)


@asynccontextmanager
async def beside(here: Here, path: Path) -> AsyncIterator[Client]:
    """The side that reads the file of the log."""
    async with open_beside(DataDir(path), FEATURES) as client:
        yield client


@asynccontextmanager
async def remote(here: Here, path: Path) -> AsyncIterator[Client]:
    """The side that asks the server."""
    async with remote_at(here.serving.url) as client:
        yield client


@asynccontextmanager
async def remote_at(url: str, **options: Any) -> AsyncIterator[Remote]:
    """A client of the server at an address."""
    where = Named(Address.of(url))
    async with open_remote(RealEnv(), where, READING, **options) as client:
        yield client


SIDES: dict[str, Opening] = {"embedded": embedded, "beside": beside, "remote": remote}


class Asked:
    """A side of the port, and the node behind it, which is asked directly to compare."""

    def __init__(self, client: Client, here: Here) -> None:
        """Ask both."""
        self.client = client
        self.here = here
        self.node: Node = here.node

    async def direct(self, operation: str, args: dict[str, Any]) -> Any:
        """Ask the node itself."""
        return await self.node.operations.call(LOCAL, operation, args)

    async def ended(self, entry_id: str, **args: Any) -> str:
        """Execute a run to its end; give its id."""
        asked = {"plugin_id": "test", "entry_id": entry_id, "args": args, "mode": "sync"}
        return str((await self.direct("runs.create", asked))["run"]["run_id"])

    async def begun(self, entry_id: str, **args: Any) -> str:
        """Begin a run; give its id."""
        asked = {"plugin_id": "test", "entry_id": entry_id, "args": args}
        return str((await self.direct("runs.create", asked))["run"]["run_id"])


@asynccontextmanager
async def asked_through(side: str, path: Path) -> AsyncIterator[Asked]:
    """Open a server on a directory, and a side of the port to its log."""
    async with server_here(path) as here, SIDES[side](here, path) as client:
        yield Asked(client, here)


async def until(
    follow: AsyncIterator[Delivery], is_enough: Callable[[list[Delivery]], bool]
) -> list[Delivery]:
    """Collect deliveries until they are enough."""
    seen: list[Delivery] = []
    with trio.fail_after(PATIENCE):
        while not is_enough(seen):
            seen.append(await anext(follow))
    return seen


def events_in(deliveries: list[Delivery]) -> list[Any]:
    """All events, in order."""
    return [event for delivery in deliveries for event in delivery.events]


class CuttingProxy:
    """Passes bytes on to a server, and cuts each connection after some of them."""

    def __init__(self, url: str, seed: int, most: int) -> None:
        """Cut after up to ``most`` bytes from the server, by a seed."""
        address = Address.of(url)
        self._host, self._port = address.host, address.port
        self._random = random.Random(seed)
        self._most = most
        self.cuts = 0
        self.is_cutting = True
        self.url = ""

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Listen on a free port."""
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        async with trio.open_nursery() as nursery:
            task_status.started()
            await trio.serve_listeners(self._pass_on, [listener], handler_nursery=nursery)

    async def _pass_on(self, client: trio.SocketStream) -> None:
        left = self._random.randrange(self._most) if self.is_cutting else None
        try:
            server = await trio.open_tcp_stream(self._host, self._port)
            async with client, server, trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, client, server, None, nursery.cancel_scope)
                await self._pump(server, client, left, nursery.cancel_scope)
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def _pump(
        self,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        left: int | None,
        scope: trio.CancelScope,
    ) -> None:
        while data := await source.receive_some(4096):
            if left is not None and len(data) >= left:
                await sink.send_all(data[:left])
                self.cuts += 1
                break
            await sink.send_all(data)
            left = None if left is None else left - len(data)
        scope.cancel()


@asynccontextmanager
async def cutting(url: str, seed: int, most: int) -> AsyncIterator[CuttingProxy]:
    """Put a cutting proxy before a server."""
    proxy = CuttingProxy(url, seed, most)
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.run)
        yield proxy
        nursery.cancel_scope.cancel()
