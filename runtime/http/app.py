"""The application: every row of the table behind one door.

app = create_app(node, settings)                         # the Run protocol
app = create_app(node, settings, [*ROWS, *events.ROWS])  # and what other modules add
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route

from perdure.runtime.http.documents import DESCRIBING
from perdure.runtime.http.middleware import Door
from perdure.runtime.kernel.routes.reply import empty_reply
from perdure.runtime.kernel.routes.route import Surface
from perdure.runtime.runs.routes import ROWS
from perdure.runtime.websocket import SocketLimits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.types import Receive, Scope, Send

    from perdure.runtime.kernel.node import Node
    from perdure.runtime.kernel.routes.route import Handler, Row
    from perdure.runtime.kernel.settings import Settings


def create_app(
    node: Node,
    settings: Settings,
    rows: Iterable[Row] = ROWS,
    sockets: SocketLimits | None = None,
) -> Starlette:
    """Serve a node. Rows whose operation the node does not offer are left out.

    ``sockets`` is what the WebSockets beside it may take.
    """
    served = [
        row for row in (*rows, *DESCRIBING) if row.needs is None or row.needs in node.operations
    ]
    surface = Surface(node=node, settings=settings, sockets=sockets or SocketLimits(), rows=served)
    app = Starlette(routes=_routes(surface, served))
    app.router.redirect_slashes = False
    app.middleware_stack = Door(app.router, settings.origins)
    return app


def _routes(surface: Surface, rows: Sequence[Row]) -> list[Route]:
    handlers: dict[str, dict[str, Handler]] = {}
    for row in rows:
        handlers.setdefault(row.path, {})[row.method] = row.make(surface)
    return [Route(path, _Resource(methods)) for path, methods in handlers.items()]


class _Resource:
    """What is at one address, by method."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = dict(handlers)
        if "GET" in handlers:
            self._handlers.setdefault("HEAD", handlers["GET"])
        self._allowed = ", ".join(sorted({*self._handlers, "OPTIONS"}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handlers.get(scope["method"])
        if handler is not None:
            answer = await handler(Request(scope, receive))
            await answer(scope, receive, send)
        elif scope["method"] == "OPTIONS":
            allowed = (b"allow", self._allowed.encode())
            await empty_reply(204, allowed)(scope, receive, send)
        else:
            raise HTTPException(405, headers={"Allow": self._allowed})
