"""The protocol as an AsyncAPI document, made from the types that the code reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NotRequired, TypedDict

import msgspec

from perdure.runtime.kernel.errors import ErrorDetail
from perdure.runtime.kernel.socket_protocol import FOLLOW
from perdure.runtime.websocket.conversation import Call, EndReason, Follow, More, Stop
from perdure.runtime.websocket.formats import FORMATS
from perdure.runtime.websocket.sockets import PATH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.runtime.kernel.features import Features
    from perdure.runtime.kernel.operations import Operation

_REFERENCE: Final = "#/components/schemas/{name}"


class Answer(TypedDict):
    """The answer to a call: what was asked for, and the cursor at which it is true.

    What a triggered entry gives has none.
    """

    id: str | int
    ok: dict[str, Any]
    cursor: NotRequired[str]


class Refusal(TypedDict):
    """A call or a follow that was refused or cannot go on; without an id, a message."""

    id: str | int | None
    error: ErrorDetail


class Events(TypedDict):
    """Events of a follow, and the cursor that leads on from here.

    The cursor is null until the initial listing is complete. Without events it is a heartbeat.
    """

    id: str | int
    events: list[Any]
    cursor: str | None


class Live(TypedDict):
    """A follow has caught up: what comes now has just happened."""

    id: str | int
    live: str


class End(TypedDict):
    """A follow has ended, and where: whoever follows again from there misses nothing."""

    id: str | int
    end: EndReason
    cursor: NotRequired[str | None]


FROM_CLIENTS: Final = (Call, Follow, More, Stop)
FROM_SERVER: Final = (Answer, Refusal, Events, Live, End)


def document(operations: Iterable[Operation], features: Features, version: str) -> dict[str, Any]:
    """Describe everything that can be said on a connection."""
    rows = [row for row in operations if not row.follows]
    events = {name: channel.event for name, channel in features.channels.items()}
    types: list[Any] = [*FROM_CLIENTS, *FROM_SERVER, features.operations[FOLLOW].request]
    types += events.values()
    types += [kind for row in rows for kind in (row.request, row.response)]
    made, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    schemas = dict(zip(types, made, strict=True))
    messages = {
        kind.__name__: {
            "summary": _summary(kind),
            "payload": schemas[kind],
            "contentType": "application/json",
        }
        for kind in (*FROM_CLIENTS, *FROM_SERVER)
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Perdure over WebSocket",
            "version": version,
            "description": (
                "Calls and follows on one connection. The subprotocols are "
                + " and ".join(f"`{name}`" for name in FORMATS)
                + "; without one, JSON is spoken. An operation answers with the fields of its"
                " response; `cursor` stands beside `ok`."
            ),
        },
        "defaultContentType": "application/json",
        "channels": {
            "connection": {
                "address": PATH,
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
            }
        },
        "operations": {
            "fromClients": _said("receive", FROM_CLIENTS),
            "fromServer": _said("send", FROM_SERVER),
        },
        "components": {"messages": messages, "schemas": components},
        "x-calls": {
            row.name: {
                "summary": row.summary,
                "args": schemas[row.request],
                "answer": schemas[row.response],
                "errors": list(row.errors),
            }
            for row in rows
        },
        "x-channels": {name: schemas[event] for name, event in events.items()},
    }


def _said(action: str, kinds: Iterable[type]) -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": "#/channels/connection"},
        "messages": [{"$ref": f"#/channels/connection/messages/{kind.__name__}"} for kind in kinds],
    }


def _summary(kind: type) -> str:
    return (kind.__doc__ or "").partition("\n")[0]
