"""A served node in a thread of its own, for judges that have no event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import trio
from starlette.types import ASGIApp

from perdure.runtime.http.app import create_app
from perdure.runtime.kernel.settings import Settings
from perdure.runtime.plugins.plugin import Plugin
from tests.runtime.service import real_service

Headers = Iterable[tuple[bytes, bytes]]


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as what it says it is."""
        return msgspec.json.decode(self.body)


async def call(
    app: ASGIApp,
    method: str,
    path: str,
    query: bytes = b"",
    headers: Headers = (),
    body: bytes = b"",
) -> Answer:
    """Ask an application as a server would."""
    arriving: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        await trio.lowlevel.checkpoint()
        return arriving.pop() if arriving else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("utf-8", "surrogatepass"),
        "query_string": query,
        "root_path": "",
        "headers": list(headers),
    }
    await app(scope, receive, send)
    start, *rest = sent
    return Answer(
        start["status"], start["headers"], b"".join(each.get("body", b"") for each in rest)
    )


class Portal:
    """Asks the application from any thread."""

    def __init__(self, app: ASGIApp, token: trio.lowlevel.TrioToken) -> None:
        """Ask in the event loop that the token is of."""
        self.app = app
        self._token = token

    def ask(
        self,
        method: str,
        path: str,
        query: bytes = b"",
        headers: Headers = (),
        body: bytes = b"",
    ) -> Answer:
        """Ask, and wait for the answer."""
        return trio.from_thread.run(
            call, self.app, method, path, query, headers, body, trio_token=self._token
        )

    def wsgi(
        self, environ: Mapping[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Be a WSGI application, for judges that know those."""
        headers = [
            (name[5:].lower().replace("_", "-").encode("latin-1"), value.encode("latin-1"))
            for name, value in environ.items()
            if name.startswith("HTTP_")
        ]
        for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            if environ.get(name):
                key = name.lower().replace("_", "-").encode()
                headers.append((key, environ[name].encode("latin-1")))
        answer = self.ask(
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"].encode("latin-1").decode("utf-8", "surrogateescape"),
            environ.get("QUERY_STRING", "").encode("latin-1"),
            headers,
            environ["wsgi.input"].read(),
        )
        start_response(
            f"{answer.status} ",
            [(name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers],
        )
        return [answer.body]


@contextmanager
def served(plugins: Mapping[str, Plugin], **limits: Any) -> Iterator[Portal]:
    """Serve a node on a log in memory for the length of a block."""
    ready = threading.Event()
    portals: list[Portal] = []
    stop = trio.Event()

    async def main() -> None:
        async with real_service(plugins, **limits) as behind:
            app = create_app(behind.node, Settings())
            portals.append(Portal(app, trio.lowlevel.current_trio_token()))
            ready.set()
            await stop.wait()

    def run() -> None:
        try:
            trio.run(main)
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    (portal,) = portals
    try:
        yield portal
    finally:
        portal._token.run_sync_soon(stop.set)
        thread.join()
