"""A stream of server-sent events, without I/O: deliveries in, bytes out, and when it is over.

The rules are those of the HTML standard (9.2, server-sent events):

* An event's ``id`` is the cursor that leads on from it. A client that comes back sends the last one
  it has seen, so it misses nothing and gets nothing twice.
* A block of nothing but an ``id`` shows nothing to the page, and still becomes what the client
  comes back with. Whoever follows something rare so keeps its place near the head of the log.
* Runs that are listed at the beginning have no ``id`` but the last of them: who comes back before
  that gets the list again, from its beginning.
* A client comes back whenever a stream ends. What is over ends with an event ``end``; whoever comes
  back with its ``id`` is answered 204, which is how a client is told to stay away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.runtime.kernel.channels.subscription import Delivery
    from perdure.runtime.kernel.errors import OperationError

EVENT_STREAM: Final = "text/event-stream"
RETRY: Final = 1.0  # seconds after which a client comes back
_GOING: Final = "this server is going down; come back with the last id"


class EventStream:
    """What is sent on one stream. Whoever pumps it stops when it is ``closed``."""

    def __init__(self, *, retry: float = RETRY) -> None:
        """Tell clients when to come back, in seconds."""
        self.closed = False
        self._retry = retry
        self._id: str | None = None  # the last that was sent

    def begin(self) -> bytes:
        """Open the stream: clients learn when to come back, and that somebody is there."""
        return b"retry: %d\n\n" % round(self._retry * 1000)

    def deliver(self, delivery: Delivery, cursors: Sequence[str | None]) -> bytes:
        """Send events, each with the cursor that leads on from it; then the end, if it is one."""
        parts: list[bytes] = []
        for event, cursor in zip(delivery.events, cursors, strict=True):
            parts.append(b"event: %b\n" % event.kind.encode())
            if cursor is not None:
                parts.append(self._moved(cursor))
            parts.append(b"data: %b\n\n" % event.json)
        if delivery.end:
            self.closed = True
            told = {"cursor": delivery.cursor}
            parts.append(b"event: end\n" + self._moved(delivery.cursor) + _data(told))
        elif delivery.cursor != self._id:
            parts.append(self._moved(delivery.cursor) + b"\n")
        return b"".join(parts)

    def beat(self) -> bytes:
        """Say that somebody is still there."""
        return b":\n\n"

    def bye(self, error: OperationError | None = None) -> bytes:
        """Close a stream that is not over: the client comes back, and goes on where it was."""
        self.closed = True
        code = "UNAVAILABLE" if error is None else error.code
        message = _GOING if error is None else error.message
        return b"event: bye\n" + _data({"code": code, "message": message, "cursor": self._id})

    def _moved(self, cursor: str | None) -> bytes:
        if cursor is None:
            return b""
        self._id = cursor
        return b"id: %b\n" % cursor.encode()


def _data(value: object) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(value)
