"""A whole server in this process, and a client of its socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import trio

from perdure.runtime.features import FEATURES
from perdure.runtime.plugins.loading import LoadedPlugins, LoadOutcome, PluginSource
from perdure.runtime.plugins.plugin import Plugin, declared
from perdure.runtime.runs.feature import RunsFeature
from perdure.runtime.server.server import Server, Serving
from tests.runtime.http.sse import Event, Parser
from tests.runtime.settings import settings_with
from tests.runtime.world import Example


class Here:
    """A server, and ways to ask it over its socket."""

    def __init__(
        self, server: Server, serving: Serving, http: httpx.AsyncClient, ended: trio.Event
    ) -> None:
        """Ask a server that runs."""
        self.server = server
        self.ended = ended
        self.serving = serving
        self.node = serving.node
        self.http = http

    async def create(self, entry_id: str, **more: Any) -> str:
        """Create a run of the test plugin."""
        body = {"plugin_id": "test", "entry_id": entry_id, "args": {}, **more}
        response = await self.http.post("/runs", json=body)
        assert response.status_code in {200, 202}, response.text
        return str(response.json()["run_id"])

    async def record(self, run_id: str) -> dict[str, Any]:
        """Read a run."""
        return (await self.http.get(f"/runs/{run_id}")).json()  # type: ignore[no-any-return]

    async def events(
        self, path: str, seen: list[Event], parser: Parser | None = None, **options: Any
    ) -> None:
        """Follow a stream until it ends, or this is cancelled."""
        parser = parser or Parser()
        async with self.http.stream("GET", path, timeout=None, **options) as response:
            async for data in response.aiter_raw():
                seen.extend(parser.feed(data))


@asynccontextmanager
async def server_here(
    path: Path, plugins: Mapping[str, Plugin] | None = None, **settings: Any
) -> AsyncIterator[Here]:
    """Run a server on a free port; leaving the block ends it as a crash would."""
    loaded = LoadedPlugins(
        {PluginSource(name="the test"): LoadOutcome(plugins or {"test": declared(Example)})}
    )
    server = Server(
        settings_with(data_dir=str(path), port=0, **settings),
        FEATURES.replacing(RunsFeature(loaded=loaded)),
    )
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=50)
    ended = trio.Event()

    async def run(task_status: trio.TaskStatus[Serving]) -> None:
        await server.run(task_status=task_status)
        ended.set()

    async with trio.open_nursery() as nursery:
        serving: Serving = await nursery.start(run)
        async with httpx.AsyncClient(base_url=serving.url, timeout=30, limits=limits) as http:
            yield Here(server, serving, http, ended)
        nursery.cancel_scope.cancel()
