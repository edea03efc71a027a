"""The route at which the protocol over WebSocket is described."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perdure.runtime.kernel.operations import COMMON_ERRORS
from perdure.runtime.kernel.release import release
from perdure.runtime.kernel.routes.constant import always
from perdure.runtime.kernel.routes.reply import json_reply
from perdure.runtime.kernel.routes.route import Route
from perdure.runtime.websocket.asyncapi import document

if TYPE_CHECKING:
    from perdure.runtime.kernel.routes.route import Handler, Surface


def _asyncapi(surface: Surface) -> Handler:
    node = surface.node
    return always(json_reply(document(node.operations, node.features, release()["version"])))


ASYNCAPI: Final = Route(
    method="GET",
    path="/asyncapi.json",
    name="http.asyncapi",
    summary="Describe what is said over WebSocket at /ws, for programs (AsyncAPI 3).",
    make=_asyncapi,
    tag="about",
    response=dict[str, Any],
    errors=COMMON_ERRORS,
)
