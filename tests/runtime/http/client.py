"""A client on the application itself, in the same event loop; no socket is between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
from starlette.applications import Starlette

from perdure.eventlog import MemoryStore
from perdure.runtime.http.app import create_app
from perdure.runtime.kernel.settings import Settings
from perdure.runtime.plugins.plugin import Plugin, declared
from perdure.runtime.runs.settings import RunSettings
from perdure.runtime.websocket.sockets import PATH, UPGRADE_TO
from tests.runtime.service import Service, service
from tests.runtime.world import Example


class Client:
    """Asks the application as a program would, and a node about what became of it."""

    def __init__(self, behind: Service, app: Starlette) -> None:
        """Ask an application."""
        self.behind = behind
        self.app = app
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://perdure.test")

    async def get(self, path: str, **more: Any) -> httpx.Response:
        """Read."""
        return await self.http.get(path, **more)

    async def post(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        """Ask for something, with a body of JSON if there is one."""
        if body is not None:
            more = {"content": msgspec.json.encode(body), "headers": JSON, **more}
        return await self.http.post(path, **more)

    async def create(self, entry_id: str, **more: Any) -> httpx.Response:
        """Create a run of the test plugin."""
        body = {"plugin_id": "test", "entry_id": entry_id, "args": {}, **more}
        return await self.post("/runs", body)

    async def started(self, entry_id: str, **more: Any) -> str:
        """Create a run and give its id."""
        response = await self.create(entry_id, **more)
        assert response.status_code == 202, response.text
        return str(response.json()["run_id"])

    async def ended(self, run_id: str) -> dict[str, Any]:
        """Wait for the end of a run, and read its record."""
        await self.behind.world.end(run_id)
        return await self.record(run_id)

    async def record(self, run_id: str, **query: Any) -> dict[str, Any]:
        """Read the record of a run."""
        response = await self.get(f"/runs/{run_id}", params=query)
        assert response.status_code == 200, response.text
        return response.json()  # type: ignore[no-any-return]


JSON: Mapping[str, str] = {"content-type": "application/json"}


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error that a response holds: it has the one shape that errors have."""
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "details"}
    assert response.headers["content-type"] == "application/json"
    return body["error"]  # type: ignore[no-any-return]


@asynccontextmanager
async def client(
    settings: Settings | None = None,
    *,
    plugins: Mapping[str, Plugin] | None = None,
    store: MemoryStore | None = None,
    **more: Any,
) -> AsyncIterator[Client]:
    """Serve a node in memory and virtual time, as settings say."""
    settings = settings or Settings()
    plugins = plugins or {"test": declared(Example)}
    stated = settings.of(RunSettings)
    for name in ("trigger", "trigger_choice", "unknown_entries"):
        more.setdefault(name, getattr(stated, name))
    async with service(store, plugins, **more) as behind:
        asking = Client(behind, create_app(behind.node, settings, upgrades={PATH: UPGRADE_TO}))
        async with asking.http:
            yield asking
