"""The application: every route of a node's features, and those that describe them.

app = create_app(node, settings)                                        # answers
app = create_app(node, settings, [*event_routes(features), *HEALTH])    # and what servers add
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route as Address

from perdure.runtime.http.capabilities import about_routes
from perdure.runtime.http.documents import DOCUMENTS
from perdure.runtime.http.middleware import Middleware
from perdure.runtime.kernel.routes.reply import empty_reply
from perdure.runtime.kernel.routes.route import Surface

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.types import Receive, Scope, Send

    from perdure.runtime.kernel.features import Features
    from perdure.runtime.kernel.node import Node
    from perdure.runtime.kernel.routes.reply import Header
    from perdure.runtime.kernel.routes.route import Handler, Route
    from perdure.runtime.kernel.settings import Settings


def routes_of(features: Features, more: Iterable[Route] = ()) -> Sequence[Route]:
    """Give all that can be served of some features, with what others add."""
    return (*features.routes, *about_routes(features), *more, *DOCUMENTS)


def create_app(
    node: Node,
    settings: Settings,
    more: Iterable[Route] = (),
    *,
    facts: Mapping[str, Any] | None = None,
    upgrades: Mapping[str, Sequence[Header]] | None = None,
) -> Starlette:
    """Serve a node. Routes whose operation the node does not offer are left out.

    ``more`` are routes of other surfaces and of the server, ``facts`` what those add to the
    capabilities, ``upgrades`` the addresses of other protocols.
    """
    served = [
        route
        for route in routes_of(node.features, more)
        if route.needs is None or route.needs in node.operations
    ]
    surface = Surface(node=node, settings=settings, routes=served, facts=facts or {})
    app = Starlette(routes=_addresses(surface, served))
    app.router.redirect_slashes = False
    app.middleware_stack = Middleware(app.router, settings.server.origins, upgrades)
    return app


def _addresses(surface: Surface, routes: Sequence[Route]) -> list[Address]:
    handlers: dict[str, dict[str, Handler]] = {}
    for route in routes:
        handlers.setdefault(route.path, {})[route.method] = route.make(surface)
    return [Address(path, _Resource(methods)) for path, methods in handlers.items()]


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
