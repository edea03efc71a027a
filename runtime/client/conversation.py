"""What a client says on one connection, and what it is told, without saying how it is sent.

The messages are those of ``perdure.v1+cbor``: the conversation writes calls and follows, reads what
comes back, and knows what is open. ``perdure.runtime.websocket.conversation`` is the server's half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cbor2

from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError
from perdure.runtime.kernel.errors import ERRORS, OperationError
from perdure.runtime.kernel.socket_protocol import MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping


class NotUnderstood(Exception):
    """The peer sends what no server of ours says."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A call is answered."""

    id: int
    answer: Any


@dataclass(frozen=True, slots=True)
class Refused:
    """A call or a follow is refused, or a follow cannot go on."""

    id: int
    error: OperationError


@dataclass(frozen=True, slots=True)
class Events:
    """Some events of a follow, maybe none, and the cursor that leads on."""

    id: int
    events: list[Any]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """A follow has caught up."""

    id: int
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Ended:
    """A follow has ended: with what it followed, because it was stopped, or with its server."""

    id: int
    reason: str
    cursor: str | None


Told = Answered | Refused | Events | CaughtUp | Ended


class Conversation:
    """The client's state of one connection: which ids stand for what."""

    def __init__(self) -> None:
        """Begin with nothing open."""
        self._last_id = 0
        self._open: set[int] = set()

    # What the client says

    def call(self, operation: str, args: Mapping[str, Any]) -> tuple[int, bytes]:
        """Ask for an operation; give its id and the message."""
        return self._begin({"call": operation, "args": dict(args)})

    def follow(
        self, follow: Mapping[str, Any], after: str | None, credit: int
    ) -> tuple[int, bytes]:
        """Follow a channel from a cursor on; give its id and the message."""
        return self._begin({"follow": dict(follow), "after": after, "credit": credit})

    def credit(self, follow_id: int, credit: int) -> bytes:
        """Allow a follow so many events more."""
        return cbor2.dumps({"id": follow_id, "credit": credit})

    def stop(self, follow_id: int) -> bytes:
        """Follow no longer; what still comes is passed over."""
        self.forget(follow_id)
        return cbor2.dumps({"id": follow_id, "stop": True})

    def forget(self, opened: int) -> None:
        """Pass over what still comes for an id."""
        self._open.discard(opened)

    def _begin(self, message: dict[str, Any]) -> tuple[int, bytes]:
        try:
            cbor.check(message)  # or the server would end the connection
            data = cbor2.dumps({"id": self._last_id + 1, **message})
        except (CodecError, cbor2.CBOREncodeError, ValueError, RecursionError) as error:
            raise OperationError(
                "VALIDATION_ERROR", f"the arguments cannot be sent: {error}"
            ) from error
        if len(data) > MESSAGE_BYTES:
            raise OperationError(
                "PAYLOAD_TOO_LARGE",
                f"the request has {len(data)} bytes, and a message may have {MESSAGE_BYTES}",
                size=len(data),
                limit=MESSAGE_BYTES,
            )
        self._last_id += 1
        self._open.add(self._last_id)
        return self._last_id, data

    # What the server says

    def receive(self, message: bytes) -> Told | None:
        """Read a message; None if it is about something that is not open any more."""
        try:
            value = cbor2.loads(message)
            told = _told(value)
            _check(told)
        except (cbor2.CBORDecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise NotUnderstood(f"this is no message: {error}") from error
        if told.id not in self._open:
            return None
        if not isinstance(told, Events | CaughtUp):
            self._open.discard(told.id)
        return told


def _told(value: dict[str, Any]) -> Told:
    if "events" in value:
        return Events(value["id"], value["events"], value["cursor"])
    if "ok" in value:
        place = {"cursor": value["cursor"]} if "cursor" in value else {}
        return Answered(value["id"], {**value["ok"], **place})
    if "error" in value:
        error = error_of(value["error"])
        no_message = value["id"] is None  # what was sent made no sense; its id is a detail
        return Refused((error.details or {})["id"] if no_message else value["id"], error)
    if "live" in value:
        return CaughtUp(value["id"], value["live"])
    return Ended(value["id"], value["end"], value["cursor"])


def _check(told: Told) -> None:
    """Raise TypeError for parts that are not of their type: they come from another process."""
    if type(told.id) is not int:
        raise TypeError("an id of this client is a number")
    if isinstance(told, Events) and not isinstance(told.events, list):
        raise TypeError("events are a list")
    if isinstance(told, Events | CaughtUp | Ended) and not isinstance(told.cursor, str | None):
        raise TypeError("a cursor is a text")


def error_of(view: Mapping[str, Any]) -> OperationError:
    """Give the error that a server has told, as this process would have raised it."""
    code, message = view["code"], view["message"]
    if not isinstance(message, str):
        raise TypeError("the message of an error is a text")
    if code not in ERRORS:  # of a newer server
        return OperationError("INTERNAL", f"{code}: {message}", **(view["details"] or {}))
    remedy = ERRORS[code].remedy
    told = message.removesuffix(f"; {remedy}") if remedy else message
    return OperationError(code, told, **(view["details"] or {}))
