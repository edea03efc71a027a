"""What is served here, as data: the version, and every limit that a client may want to know.

All of it is read from the objects that are in force; features and other surfaces add theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, get_args

from perdure.eventlog.append import MAX_RECORD_BYTES
from perdure.eventlog.cbor import MAX_DEPTH, MAX_VALUES
from perdure.runtime.http.event_stream import EVENT_STREAM
from perdure.runtime.kernel.operations import COMMON_ERRORS
from perdure.runtime.kernel.release import Version, release
from perdure.runtime.kernel.requests import Limit
from perdure.runtime.kernel.routes.constant import always
from perdure.runtime.kernel.routes.reply import json_reply
from perdure.runtime.kernel.routes.route import Route
from perdure.runtime.kernel.strict_json import JSON

if TYPE_CHECKING:
    from perdure.runtime.kernel.features import Features
    from perdure.runtime.kernel.routes.route import Surface


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
    operations: list[str]
    errors: dict[str, ErrorMeaning]


def capabilities_type(features: Features) -> Any:  # noqa: ANN401 - a type
    """Give the type of the capabilities, with what features add."""
    fields = {**Capabilities.__annotations__, **features.capabilities}
    made = TypedDict("Capabilities", fields)  # type: ignore[misc]  # names from features
    made.__doc__ = Capabilities.__doc__
    return made


def capabilities(surface: Surface) -> dict[str, Any]:
    """Say what can be done here."""
    node, features = surface.node, surface.node.features
    (page,) = get_args(Limit)[1:]
    told: dict[str, Any] = {
        "version": release()["version"],
        "limits": {
            "body_bytes": surface.settings.server.body_limit,
            "record_bytes": MAX_RECORD_BYTES,
            "depth": MAX_DEPTH,
            "values": MAX_VALUES,
            "page": page.le,
        },
        "rates": {},
        "windows": {"heartbeat": node.channels.limits.heartbeat},
        "channels": {
            name: list(channel.event.__annotations__) for name, channel in features.channels.items()
        },
        "formats": [JSON, EVENT_STREAM],
        "websocket": {},
        "operations": [operation.name for operation in node.operations],
        "errors": {
            code: {
                "status": kind.status,
                "retriable": kind.retriable,
                "meaning": kind.meaning,
                "remedy": kind.remedy,
            }
            for code, kind in features.errors.items()
        },
    }
    for added in (*(part.capabilities() for part in node.parts.values()), surface.facts):
        for name, value in added.items():
            told[name] = _joined(told.get(name), value)
    return told


def _joined(known: Any, more: Any) -> Any:  # noqa: ANN401 - any JSON
    """Add to a mapping or a list; anything else is new."""
    if isinstance(known, dict):
        return known | more
    return more if known is None else [*known, *more]


def about_routes(features: Features) -> tuple[Route, ...]:
    """Give the routes that say what answers here."""
    return (
        Route(
            method="GET",
            path="/capabilities",
            name="http.capabilities",
            summary="Say what can be done here: limits, rates, windows, channels, formats, errors.",
            make=lambda surface: always(json_reply(capabilities(surface))),
            tag="about",
            response=capabilities_type(features),
            errors=COMMON_ERRORS,
        ),
        Route(
            method="GET",
            path="/version",
            name="http.version",
            summary="Say which release answers here.",
            make=lambda _: always(json_reply(release())),
            tag="about",
            response=Version,
            errors=COMMON_ERRORS,
        ),
    )
