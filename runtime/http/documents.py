"""The routes that describe all routes: the OpenAPI document, and the page made from it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from perdure.runtime.http.openapi import document
from perdure.runtime.http.page import ADDRESS, HTML, page, policy
from perdure.runtime.kernel.operations import COMMON_ERRORS
from perdure.runtime.kernel.release import release
from perdure.runtime.kernel.routes.arguments import refuse_query
from perdure.runtime.kernel.routes.constant import always
from perdure.runtime.kernel.routes.reply import empty_reply, json_reply, text_reply
from perdure.runtime.kernel.routes.route import Route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from perdure.runtime.kernel.routes.route import Handler, Surface

_HOST: Final = re.compile(r"[A-Za-z0-9.:\[\]_-]+")


def _document(surface: Surface) -> dict[str, Any]:
    return document(surface.routes, surface.node.features, release()["version"])


def _openapi(surface: Surface) -> Handler:
    return always(json_reply(_document(surface)))


def _docs(surface: Surface) -> Handler:
    pieces = page(_document(surface)).split(ADDRESS)
    header = (b"content-security-policy", policy().encode())

    async def docs(request: Request) -> ASGIApp:
        refuse_query(request)
        return text_reply(_address_of(request).join(pieces), HTML, header)

    return docs


def _address_of(request: Request) -> str:
    """Give the address by which a client has reached us, if a shell takes it as it is."""
    host = request.headers.get("host", "")
    return f"{request.url.scheme}://{host if _HOST.fullmatch(host) else 'localhost'}"


def _front(_surface: Surface) -> Handler:
    return always(empty_reply(303, (b"location", b"/docs")))


DOCUMENTS: Final = (
    Route(
        method="GET",
        path="/",
        name="http.front",
        summary="Show people the way to the page that describes this API.",
        make=_front,
        tag="about",
        statuses={303: "It is there."},
        headers={"Location": "Where it is."},
        errors=COMMON_ERRORS,
    ),
    Route(
        method="GET",
        path="/openapi.json",
        name="http.openapi",
        summary="Describe this API for programs (OpenAPI 3.1).",
        make=_openapi,
        tag="about",
        response=dict[str, Any],
        errors=COMMON_ERRORS,
    ),
    Route(
        method="GET",
        path="/docs",
        name="http.docs",
        summary="Describe this API for people.",
        make=_docs,
        tag="about",
        gives=HTML,
        errors=COMMON_ERRORS,
    ),
)
