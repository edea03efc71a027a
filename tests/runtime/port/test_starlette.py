"""A Starlette app above the port, and clients that are not ours."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.runtime.port.world import World, request, serving


class Ticks:
    """Events. Not a generator: nobody would close it when the client has gone."""

    def __init__(self, most: int) -> None:
        """Give so many."""
        self._most = most
        self._number = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Begin."""
        return self

    async def __anext__(self) -> bytes:
        """Give the next one."""
        if self._number == self._most:
            raise StopAsyncIteration
        self._number += 1
        await trio.sleep(0.01)
        return f"id: {self._number}\ndata: tick\n\n".encode()


class App:
    """Routes of every kind that the surfaces use."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.happened: list[str] = []
        self.event = trio.Event()

    async def echo(self, request: Request) -> Response:
        """Say how much was sent."""
        return JSONResponse({"bytes": len(await request.body())})

    async def ticks(self, request: Request) -> Response:
        """Send events until the client has gone."""
        ticks = Ticks(int(request.query_params.get("most", "1000000")))
        return StreamingResponse(ticks, media_type="text/event-stream")

    async def later(self, request: Request) -> Response:
        """Answer, and do something afterwards."""
        return Response("now", background=BackgroundTask(self.happened.append, "later"))

    async def broken(self, request: Request) -> Response:
        """Fail."""
        raise ValueError("at /secret/path")

    async def upload(self, request: Request) -> Response:
        """Read until the client has gone."""
        try:
            async for _ in request.stream():
                pass
        except ClientDisconnect:
            self.happened.append("disconnect")
            self.event.set()
            raise
        return Response()

    def starlette(self) -> Any:
        """The routes as an app."""
        return Starlette(
            routes=[
                Route("/echo", self.echo, methods=["POST"]),
                Route("/ticks", self.ticks),
                Route("/later", self.later),
                Route("/broken", self.broken),
                Route("/upload", self.upload, methods=["POST"]),
            ]
        )


def client_of(world: World) -> httpx.AsyncClient:
    """An HTTP client of other people."""
    return httpx.AsyncClient(base_url="http://{}:{}".format(*world.address), trust_env=False)


async def nobody_left(world: World) -> None:
    """Wait until the last connection has ended."""
    with trio.fail_after(5):
        await world.port.drained()


async def test_httpx_speaks_with_starlette() -> None:
    """Requests, uploads in chunks, streams, work in the background, all on kept connections."""
    app = App()
    async with serving(app.starlette()) as world, client_of(world) as client:

        async def parts() -> AsyncIterator[bytes]:
            for _ in range(10):
                yield b"x" * 50_000

        assert (await client.post("/echo", content=b"x" * 1000)).json() == {"bytes": 1000}
        assert (await client.post("/echo", content=parts())).json() == {"bytes": 500_000}
        assert (await client.get("/later")).text == "now"
        assert (await client.get("/nothing")).status_code == 404
        assert (await client.head("/later")).headers["content-length"] == "3"
        stream = await client.get("/ticks?most=3")
        assert stream.text == "".join(f"id: {n}\ndata: tick\n\n" for n in (1, 2, 3))
    assert app.happened == ["later", "later"]
    assert world.port.counters.accepted == 1
    assert world.port.counters.crashes == 0


async def test_a_stream_ends_with_its_client() -> None:
    """It is not sent on to nobody, and nobody calls it a failure."""
    async with serving(App().starlette()) as world:
        client = await world.connect()
        await client.send(request("/ticks"))
        await client.stream.receive_some()
        await client.stream.aclose()
        await nobody_left(world)
    assert world.port.counters.crashes == 0


async def test_an_upload_that_breaks_off_is_seen_by_the_route(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As `ClientDisconnect`, and not as a failure of the app."""
    app = App()
    async with serving(app.starlette()) as world:
        client = await world.connect()
        await client.send(request("/upload", b"content-length: 100\r\n", "POST") + b"x")
        await client.stream.aclose()
        with trio.fail_after(5):
            await app.event.wait()
    assert world.port.counters.crashes == 0
    assert caplog.records == []


async def test_a_route_that_fails_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Starlette answers and raises on; the connection stays."""
    async with serving(App().starlette()) as world, client_of(world) as client:
        for _ in range(2):
            answer = await client.get("/broken")
            assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 2
    assert world.port.counters.accepted == 1


@pytest.mark.needs("curl")
async def test_curl_speaks_with_starlette() -> None:
    """A large upload that waits for `100 Continue`, a stream without buffering, a HEAD."""

    async def curl(*arguments: str, data: bytes = b"") -> bytes:
        command = ["curl", "-sS", "--noproxy", "*", "--max-time", "20", *arguments]
        done = await trio.run_process(command, capture_stdout=True, stdin=data)
        return bytes(done.stdout)

    async with serving(App().starlette()) as world:
        base = "http://{}:{}".format(*world.address)
        expect = ["-H", "Expect: 100-continue", "--data-binary", "@-"]
        sent = await curl(*expect, f"{base}/echo", data=b"x" * 900_000)
        assert sent == b'{"bytes":900000}'
        sent = await curl("-T", "-", "-X", "POST", f"{base}/echo", data=b"x" * 100_000)
        assert sent == b'{"bytes":100000}'
        refused = await curl(*expect, f"{base}/echo", data=b"x" * 3_000_000)
        assert b"PAYLOAD_TOO_LARGE" in refused
        assert (await curl("-N", f"{base}/ticks?most=2")).count(b"tick") == 2
        assert b"200 OK" in await curl("-I", f"{base}/later")
        process = await trio.lowlevel.open_process(
            ["curl", "-sN", "--noproxy", "*", f"{base}/ticks"], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert b"tick" in await process.stdout.receive_some()
        process.kill()
        await process.wait()
        await process.stdout.aclose()
        await nobody_left(world)
    assert world.port.counters.crashes == 0
