"""What is served here, as data: the version, and every limit that a client may want to know.

All of it is read from the objects that are in force.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Final, TypedDict, get_args

from perdure.actors.run.outbox import PROGRESS_ITEMS, WINDOW
from perdure.actors.run.output import EXPORT_FIELDS
from perdure.eventlog.append import MAX_RECORD_BYTES
from perdure.eventlog.cbor import MAX_DEPTH
from perdure.runtime.http.event_stream import EVENT_STREAM
from perdure.runtime.kernel.errors import ERRORS
from perdure.runtime.kernel.operations import COMMON_ERRORS
from perdure.runtime.kernel.routes.arguments import refuse_query
from perdure.runtime.kernel.routes.reply import json_reply
from perdure.runtime.kernel.routes.route import Row
from perdure.runtime.kernel.strict_json import JSON
from perdure.runtime.runs.answers import EVENT_TYPES
from perdure.runtime.runs.requests import Limit, RunStatus
from perdure.runtime.runs.uploads import MAX_UPLOADS
from perdure.runtime.websocket.formats import FORMATS

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from perdure.runtime.kernel.routes.reply import Reply
    from perdure.runtime.kernel.routes.route import Handler, Surface

NAME: Final = "perdure"
_NANOSECONDS: Final = 1_000_000_000


class Version(TypedDict):
    """What answers here."""

    name: str
    version: str


class ErrorMeaning(TypedDict):
    """What a code means."""

    status: int
    retriable: bool
    meaning: str
    remedy: str


class Capabilities(TypedDict):
    """What can be done here, and how much of it. Bytes are bytes, times are seconds."""

    version: str
    limits: dict[str, int | float | None]
    rates: dict[str, float]  # seconds between two of the same run, at least
    windows: dict[str, float]
    channels: dict[str, list[str]]  # the fields of their events
    formats: list[str]  # media types, and subprotocols of WebSocket
    websocket: dict[str, int | float]  # what one connection may take
    statuses: list[str]
    export_types: list[str]
    operations: list[str]
    errors: dict[str, ErrorMeaning]
    trigger: str


def release() -> Version:
    """Say what this is."""
    return {"name": NAME, "version": version(NAME)}


def capabilities(surface: Surface) -> Capabilities:
    """Say what can be done here."""
    node, settings, sockets = surface.node, surface.settings, surface.sockets
    host, blobs = node.host.limits, node.host.blobs.limits
    (page,) = get_args(Limit)[1:]
    return {
        "version": release()["version"],
        "limits": {
            "runs": host.runs,
            "timeout": host.timeout,
            "body_bytes": settings.body_limit,
            "record_bytes": MAX_RECORD_BYTES,
            "depth": MAX_DEPTH,
            "page": page.le,
            "inline_bytes": host.inline_limit,
            "blob_bytes": blobs.quota,
            "scope_blob_bytes": blobs.scope_quota,
            "uploads": MAX_UPLOADS,
        },
        "rates": {
            "progress": WINDOW / _NANOSECONDS,
            "progress_items": PROGRESS_ITEMS / _NANOSECONDS,
        },
        "windows": {
            "idempotency": node.runs.claim_window / _NANOSECONDS,
            "sync_wait": host.sync_wait,
            "cancel_grace": host.cancel_grace,
            "upload": node.blobs.upload_life / _NANOSECONDS,
            "blob_grace": blobs.grace,
            "heartbeat": node.channels.limits.heartbeat,
        },
        "channels": {name: list(event.__annotations__) for name, event in EVENT_TYPES.items()},
        "formats": [JSON, EVENT_STREAM, *FORMATS],
        "websocket": {
            "message_bytes": sockets.wire.frames.message_bytes,
            "fragments": sockets.wire.frames.fragments,
            "frames_a_second": sockets.wire.frames.rate,
            "calls": sockets.conversation.calls,
            "call_bytes": sockets.conversation.call_bytes,
            "follows": sockets.conversation.follows,
        },
        "statuses": list(get_args(RunStatus)),
        "export_types": list(EXPORT_FIELDS),
        "operations": [operation.name for operation in node.operations],
        "errors": {
            code: {
                "status": kind.status,
                "retriable": kind.retriable,
                "meaning": kind.meaning,
                "remedy": kind.remedy,
            }
            for code, kind in ERRORS.items()
        },
        "trigger": settings.trigger,
    }


def always(reply: Reply) -> Handler:
    """Answer everybody the same."""

    async def answer(request: Request) -> ASGIApp:
        refuse_query(request)
        return reply

    return answer


VERSION: Final = Row(
    method="GET",
    path="/version",
    name="http.version",
    summary="Say which release answers here.",
    make=lambda surface: always(json_reply(release())),  # noqa: ARG005 - it is the same everywhere
    tag="about",
    response=Version,
    errors=COMMON_ERRORS,
)
CAPABILITIES: Final = Row(
    method="GET",
    path="/capabilities",
    name="http.capabilities",
    summary="Say what can be done here: limits, rates, windows, channels, formats, errors.",
    make=lambda surface: always(json_reply(capabilities(surface))),
    tag="about",
    response=Capabilities,
    errors=COMMON_ERRORS,
)
