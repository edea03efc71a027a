"""Whether a server is alive, whether it is ready, and what it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypedDict

from perdure.eventlog.errors import LogClosed
from perdure.runtime.kernel.errors import translated
from perdure.runtime.kernel.opening import Progress, progress_text
from perdure.runtime.kernel.operations import COMMON_ERRORS
from perdure.runtime.kernel.routes.arguments import refuse_query
from perdure.runtime.kernel.routes.reply import Reply, json_reply
from perdure.runtime.kernel.routes.route import Route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from perdure.runtime.kernel.node import Node
    from perdure.runtime.kernel.opening import StartUp
    from perdure.runtime.kernel.routes.route import Handler, Surface

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_UNAVAILABLE: Final = 503


class Health(TypedDict):
    """That the process answers."""

    status: str


class Readiness(TypedDict):
    """Whether work can be done here; if not, why."""

    ready: bool
    why: str | None
    progress: list[Progress]  # of what a start-up has still to do; it may be ready all the same


class Shown(Protocol):
    """What gives figures as text."""

    async def shown(self) -> bytes:
        """Give all figures."""


def readiness(node: Node) -> Readiness:
    """Say whether a node takes work, and what it has still to do."""
    why = _refusal(node)
    return {"ready": why is None, "why": why, "progress": node.start_up.progress}


def _refusal(node: Node) -> str | None:
    try:
        node.log.raise_if_closed()
    except LogClosed:
        return "the log is closed"
    if (stalled := node.log.writer.stalled) is not None:
        return translated(stalled).message
    if node.closing.is_set():
        return "going down: no new work is taken"
    return None


def starting(start_up: StartUp) -> Readiness:
    """Say how far a start-up has come that has no node yet."""
    progress = start_up.progress
    return {
        "ready": False,
        "why": f"starting: {progress_text(progress)}",
        "progress": progress,
    }


def readiness_reply(ready: Readiness) -> Reply:
    """Answer with what a node says of itself."""
    return json_reply(ready, 200 if ready["ready"] else _UNAVAILABLE)


def _alive(_: Surface) -> Handler:
    async def alive(request: Request) -> ASGIApp:
        refuse_query(request)
        return json_reply({"status": "ok"})

    return alive


def _ready(surface: Surface) -> Handler:
    async def ready(request: Request) -> ASGIApp:
        refuse_query(request)
        return readiness_reply(readiness(surface.node))

    return ready


HEALTHZ: Final = Route(
    method="GET",
    path="/healthz",
    name="http.healthz",
    summary="Say that the process is alive.",
    make=_alive,
    tag="about",
    response=Health,
    errors=COMMON_ERRORS,
    answer={"status": "ok"},
)
READYZ: Final = Route(
    method="GET",
    path="/readyz",
    name="http.readyz",
    summary="Say whether work can be done here: the log can be written, and is not being closed.",
    make=_ready,
    tag="about",
    response=Readiness,
    statuses={200: "Ready.", 503: "Not ready, and why."},
    errors=tuple(code for code in COMMON_ERRORS if code not in {"OVERLOADED", "UNAVAILABLE"}),
    answer={"ready": True, "why": None, "progress": []},
)
HEALTH: Final = (HEALTHZ, READYZ)


def metrics_route(metrics: Shown) -> Route:
    """Give the row that shows figures."""

    async def scrape(request: Request) -> ASGIApp:
        refuse_query(request)
        kind = (b"content-type", METRICS_TYPE.encode())
        return Reply(200, await metrics.shown(), (kind, (b"cache-control", b"no-store")))

    return Route(
        method="GET",
        path="/metrics",
        name="http.metrics",
        summary="Show what is counted here, for Prometheus.",
        make=lambda _: scrape,
        tag="about",
        errors=COMMON_ERRORS,
        gives="text/plain",
    )
