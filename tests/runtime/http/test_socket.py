"""The whole of it over a real socket, with clients that are not ours."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import trio

from perdure.demo import Demo
from perdure.eventlog import RealEnv
from perdure.runtime.http.app import create_app
from perdure.runtime.kernel.settings import Settings
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.port import Port, open_listeners
from tests.runtime.service import real_service
from tests.runtime.settings import settings_with
from tests.runtime.world import Example

PLUGINS = {each.id: each for each in map(declared, (Example, Demo))}
MUCH = os.urandom(1 << 20) * 8


class Served(NamedTuple):
    """A server, and a client of it."""

    address: str
    http: httpx.AsyncClient

    async def run(self, entry_id: str = "greet", **more: Any) -> httpx.Response:
        """Create a run."""
        body = {"plugin_id": "test", "entry_id": entry_id, "args": {}, **more}
        return await self.http.post("/runs", json=body)

    async def ended(self, run_id: str) -> dict[str, Any]:
        """Ask until a run has ended."""
        with trio.fail_after(20):
            while True:
                record: dict[str, Any] = (await self.http.get(f"/runs/{run_id}")).json()
                if record["finished_at"] is not None:
                    return record
                await trio.sleep(0.02)

    async def running(self, entry_id: str = "deaf") -> str:
        """Create a run, and wait until it is running."""
        run_id = str((await self.run(entry_id)).json()["run_id"])
        with trio.fail_after(20):
            while True:
                status = (await self.http.get(f"/runs/{run_id}")).json()["status"]
                if status == "running":
                    return run_id
                await trio.sleep(0.02)

    async def curl(self, *words: str) -> bytes:
        """Ask with curl."""
        command = ["curl", "-sS", "--max-time", "20", *words]
        done = await trio.run_process(command, capture_stdout=True)
        return bytes(done.stdout)


@asynccontextmanager
async def serving(settings: Settings | None = None, **limits: Any) -> AsyncIterator[Served]:
    """Serve a node on a port of this machine."""
    async with real_service(PLUGINS, **limits) as behind, trio.open_nursery() as nursery:
        port = Port(create_app(behind.node, settings or Settings()), env=RealEnv())
        listeners = await nursery.start(port.serve, await open_listeners("127.0.0.1", 0))
        number = listeners[0].socket.getsockname()[1]
        address = f"http://127.0.0.1:{number}"
        async with httpx.AsyncClient(base_url=address, timeout=20) as http:
            yield Served(address, http)
        nursery.cancel_scope.cancel()


async def test_a_run_over_a_socket() -> None:
    """R57 R59 R60 R71: created, read while it runs and when it has ended, waited for."""
    async with serving() as served:
        created = await served.run("nap", args={"seconds": 0.2})
        assert (created.status_code, created.json()["status"]) == (202, "queued")
        record = (await served.http.get(created.headers["location"])).json()
        assert record["status"] in {"queued", "running"}
        assert (await served.ended(record["run_id"]))["status"] == "succeeded"
        waited = await served.run("greet", mode="sync")
        assert waited.status_code == 200
        assert [item["json"] for item in waited.json()["result"]] == ["hello you"]


async def test_a_caller_who_hangs_up_over_a_socket() -> None:
    """R61: the connection is gone, the run is not; R35: who comes back reads how it stands."""
    async with serving() as served:
        with trio.move_on_after(0.3):
            await served.run("nap", args={"seconds": 1}, mode="sync", task_id="left")
        await served.http.aclose()
        async with httpx.AsyncClient(base_url=served.address) as http:
            again = Served(served.address, http)
            (run,) = (await http.get("/runs?task_id=left")).json()["runs"]
            assert run["status"] == "running"
            assert (await again.ended(run["run_id"]))["status"] == "succeeded"


async def test_a_trigger_over_a_socket() -> None:
    """R122 R123: the envelope, or the run to follow."""
    async with serving(sync_wait=0.2) as served:
        asked: dict[str, Any] = {"plugin_id": "test", "entry_id": "greet"}
        assert (await served.http.post("/plugin/trigger", json=asked)).json()["data"] == "hello you"
        asked = {**asked, "entry_id": "nap", "args": {"seconds": 0.5}}
        late = await served.http.post("/plugin/trigger", json=asked)
        assert (late.status_code, late.json()["error"]["code"]) == (202, "STILL_RUNNING")
        assert (await served.ended(late.json()["run_id"]))["status"] == "succeeded"


async def test_many_bytes_over_a_socket() -> None:
    """R127: eight MiB in pieces of any size, and out again, whole and in ranges."""
    async with serving() as served:
        run_id = await served.running()
        where = (await served.http.post(f"/runs/{run_id}/uploads")).headers["location"]

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(MUCH), 100_000):
                yield MUCH[start : start + 100_000]

        sent = (await served.http.put(where, content=pieces())).json()
        assert sent["sha256"] == sha256(MUCH).hexdigest()
        path = f"/runs/{run_id}/blobs/{sent['sha256']}"
        assert (await served.http.get(path)).content == MUCH
        part = await served.http.get(path, headers={"range": "bytes=1000000-1999999"})
        assert (part.status_code, part.content) == (206, MUCH[1_000_000:2_000_000])
        head = await served.http.head(path)
        assert (head.headers["content-length"], head.content) == (str(len(MUCH)), b"")
        assert (await served.http.get("/version")).status_code == 200  # the connection still works


@pytest.mark.needs("curl")
async def test_too_many_bytes_over_a_socket(tmp_path: Path) -> None:
    """R127: 413 while they are still being sent; 415 as well; the sender hears why."""
    source = tmp_path / "source"
    source.write_bytes(MUCH[:100_000])  # as much as a port takes that has answered already
    async with serving(settings_with(body_limit=2000)) as served:
        run_id = await served.running()
        opened = await served.http.post(f"/runs/{run_id}/uploads", json={"size_limit": 1000})
        where = f"{served.address}{opened.headers['location']}"
        assert b'"PAYLOAD_TOO_LARGE"' in await served.curl("-T", str(source), where)
        large = ("--data-binary", f"@{source}", f"{served.address}/runs")
        assert b'"UNSUPPORTED_MEDIA_TYPE"' in await served.curl("-H", "content-type: x/y", *large)
        is_json = ("-H", "content-type: application/json")
        assert b'"PAYLOAD_TOO_LARGE"' in await served.curl(*is_json, *large)


@pytest.mark.needs("curl")
async def test_curl_can_do_all_of_it(tmp_path: Path) -> None:
    """As the guide says: create, upload from a file, resume a download that broke off."""
    async with serving() as served:
        run_id = await served.running()
        ask = partial(served.curl, "-H", "content-type: application/json")
        created = await ask(
            f"{served.address}/runs",
            "-d",
            '{"plugin_id": "demo", "entry_id": "count", "args": {"to": 3, "delay": 0}}',
        )
        assert b'"status":"queued"' in created
        where = (await served.http.post(f"/runs/{run_id}/uploads")).headers["location"]
        source, target = tmp_path / "source", tmp_path / "target"
        source.write_bytes(MUCH)
        sent = await served.curl("-T", str(source), f"{served.address}{where}")
        assert sha256(MUCH).hexdigest().encode() in sent
        target.write_bytes(MUCH[:3_000_000])
        blob = f"{served.address}/runs/{run_id}/blobs/{sha256(MUCH).hexdigest()}"
        await served.curl("-C", "-", "-o", str(target), blob)
        assert target.read_bytes() == MUCH
        assert b"200" in await served.curl("-I", blob)
        cancel = await ask("-d", '{"force": true}', f"{served.address}/runs/{run_id}/cancel")
        assert b'"cancel_requested":true' in cancel
