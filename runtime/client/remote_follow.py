"""A follow of a server that goes on over any number of connections.

It knows the cursor up to which it has received everything, and how many events it may still be
sent: its window bounds what waits for its user. A lost connection loses nothing of what was
received; the next one goes on after it. Only a listing, which has no cursor until it is complete,
begins again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

import trio

from perdure.runtime.client.client import Delivery
from perdure.runtime.client.conversation import CaughtUp, Ended, Events, Refused
from perdure.runtime.kernel.socket_protocol import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perdure.runtime.client.backoff import Backoff
    from perdure.runtime.client.conversation import Told
    from perdure.runtime.kernel.errors import OperationError

WINDOW: Final = 1000  # events that wait, or are on their way: two full frames


class RemoteFollow:
    """One follow: what was received and not yet taken, and where to go on."""

    def __init__(
        self,
        request: Mapping[str, Any],
        after: str | None,
        limit: int | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """Begin after a cursor, with so many events in a delivery at most.

        ``backoff`` says how often it is asked for again if the server refuses it for now.
        """
        self.request = request if limit is None else {**request, "limit": limit}
        self.cursor = after  # everything up to here was received
        self._window = WINDOW if limit is None else min(max(1, limit), WINDOW)
        self._backoff = backoff
        self._allowed = 0  # events that the server may still send
        self._waiting: deque[Delivery] = deque()
        self._changed = trio.Event()
        self._live = False
        self._in_listing = False
        self._listed = False  # its user has taken a part of a listing that is not complete
        self._restarts = False
        self._ended = False
        self._error: OperationError | None = None
        self.grant: Callable[[int], None] | None = None  # on the current connection

    # What the connection tells

    def begin(self) -> int:
        """Give the credit for a new connection."""
        self._allowed = max(1, self._window - self._held)
        return self._allowed

    def lose(self) -> None:
        """The connection is lost: of a listing that is not complete, nothing counts."""
        self.grant = None
        if self._in_listing:
            self._in_listing = False
            self._restarts = self._listed
            self._waiting.clear()

    async def postpone(self, error: OperationError) -> bool:
        """Wait, because the server cannot serve it now; tell whether to ask for it again."""
        self.lose()
        if self._backoff is not None:
            self._backoff.begin()
            if not self._backoff.is_over:
                await self._backoff.wait()
                return True
        self.fail(error)
        return False

    def fail(self, error: OperationError) -> None:
        """Nothing more will come, because of an error."""
        self._error = error
        self._changed.set()

    def take(self, told: Told) -> None:
        """Receive what the server says of this follow."""
        match told:
            case Events(events=events, cursor=cursor):
                self._allowed -= len(events)
                self._receive(events, cursor)
            case CaughtUp(cursor=cursor):
                self._live = True
                self._receive([], cursor)
            case Ended(reason=reason, cursor=cursor) if reason == TERMINAL:
                self._receive([], cursor, end=True)
            case Refused(error=error):
                self.fail(error)
            case _:
                pass  # an end with the server: the next connection goes on

    def _receive(self, events: list[Any], cursor: str | None, *, end: bool = False) -> None:
        delivery = Delivery(events, cursor, self._live, end, self._restarts)
        self._restarts, self._in_listing = False, cursor is None
        if self._backoff is not None:
            self._backoff.reset()
        if cursor is not None:
            self.cursor = cursor
            if not events and self._waiting:  # heartbeats do not pile up
                last = self._waiting.pop()
                delivery = last._replace(cursor=cursor, live=self._live, end=end)
        self._waiting.append(delivery)
        self._changed.set()

    @property
    def _held(self) -> int:
        return sum(len(delivery.events) for delivery in self._waiting)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be received."""
        return self._error is not None or self._ended or any(each.end for each in self._waiting)

    # What its user does

    async def opened(self) -> None:
        """Wait until the server has taken the follow; raise its error if it has not."""
        await self._something()

    def __aiter__(self) -> Self:
        """Go through what is delivered."""
        return self

    async def __anext__(self) -> Delivery:
        """Wait for the next delivery. A wait that is cancelled loses nothing.

        From taking the delivery to giving it out nothing is awaited, so nothing can be cancelled:
        the connection sends the credit.
        """
        if self._ended:
            raise StopAsyncIteration
        await trio.lowlevel.checkpoint()
        await self._something()
        delivery = self._waiting.popleft()
        self._ended = delivery.end
        self._listed = delivery.cursor is None
        more = self._window - self._held - self._allowed  # one record may have been more than all
        if more > 0 and self.grant is not None and not delivery.end:
            self._allowed += more
            self.grant(more)
        return delivery

    async def _something(self) -> None:
        while not self._waiting:
            if self._error is not None:
                raise self._error
            self._changed = trio.Event()
            await self._changed.wait()
