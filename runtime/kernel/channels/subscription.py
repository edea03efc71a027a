"""A subscription: one follower of a channel. Pull a delivery, deal with it, pull the next.

It has no queue and no task. Between two pulls it costs little, however far behind it is, and
cancelling a pull loses nothing: what was not returned comes with the next one. While it is live,
``Groups`` may push to it instead, and move it to where it has seen everything.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import trio

from perdure.runtime.kernel.errors import translated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from perdure.eventlog.follow import Follow
    from perdure.eventlog.record import Mark
    from perdure.runtime.kernel.channels.channel import InitialPages
    from perdure.runtime.kernel.channels.event import ChannelEvent
    from perdure.runtime.kernel.channels.selection import Selection


class Delivery(NamedTuple):
    """Some events in order, and the cursor that leads on from here.

    The cursor is None until the initial pages are complete. ``live`` says that nothing newer was
    known, ``end`` that nothing will follow. Without events it is a heartbeat.
    """

    events: Sequence[ChannelEvent]
    cursor: str | None
    live: bool
    end: bool


class Subscription:
    """A selection and a place."""

    def __init__(
        self,
        selection: Selection,
        follow: Follow,
        *,
        has_ended: Callable[[Mark], Awaitable[bool]] | None = None,
        initial: InitialPages | None = None,
    ) -> None:
        """Begin with initial pages, if there are any, and go on with what follows.

        ``follow`` reads by the filter of the selection; ``has_ended`` tells whether what is
        followed had ended before a place.
        """
        self.selection = selection
        self.follow = follow
        self.ended = False  # and whoever follows has been given the end
        self._has_ended = has_ended  # None once it was asked
        self._initial = initial

    @property
    def cursor(self) -> str | None:
        """The cursor up to which everything was delivered; None during the initial pages."""
        return None if self._initial is not None else self.follow.cursor

    async def next_delivery(self, limit: int | None = None, *, wait: bool = True) -> Delivery:
        """Wait for events, for the live edge, or for a heartbeat.

        A delivery has ``limit`` events, and the rest of those of its last record. Without ``wait``
        nothing is waited for at the live edge.
        """
        most = self.selection.limit
        limit = most if limit is None else min(limit, most)
        try:
            if self._initial is not None:
                return await self._next_initial(self._initial, limit)
            return await self._next_recorded(limit, wait=wait)
        except Exception as error:
            raise translated(error) from error

    def cursors(self, delivery: Delivery) -> list[str | None]:
        """Give the cursor that leads on from each event of a delivery, where there is one."""
        events = delivery.events
        if not events:
            return []
        if events[0].is_listed:
            return [*[None] * (len(events) - 1), delivery.cursor]
        marks = [event.mark for event in events]
        shared = itertools.pairwise(marks)  # events of one record: the last leads on
        cursor_at = self.follow.cursor_at
        return [*(None if a == b else cursor_at(a) for a, b in shared), delivery.cursor]

    async def _next_initial(self, initial: InitialPages, limit: int) -> Delivery:
        events = await initial.next_page(limit)
        if initial.more:
            return Delivery(events, None, live=False, end=False)
        self._initial = None
        return Delivery(events, self.follow.cursor, live=False, end=False)

    async def _next_recorded(self, limit: int, *, wait: bool) -> Delivery:
        heartbeat = self.follow.heartbeat
        while (delivery := await self._next_portion(limit, wait=wait)) is None:
            self.follow.heartbeat = heartbeat  # nothing was told: it is due as before
        return delivery

    async def _next_portion(self, limit: int, *, wait: bool) -> Delivery | None:
        """Pull once; None if there is nothing to tell of what was pulled."""
        batch = await self.follow.next_batch(limit, wait=wait)
        selection, pulled = self.selection, bool(batch.records)
        events, taken, end = selection.portion(
            batch.records, limit, read=selection.read, shown=selection.channel.shown
        )
        if taken < len(batch.records):
            batch = self.follow.give_back(batch, taken)
        self.ended = end
        if batch.live and self._has_ended is not None and not end:
            has_ended, self._has_ended = self._has_ended, None  # from here on, the end is seen
            with trio.CancelScope(shield=True):  # the place has moved: nothing may get lost
                self.ended = await has_ended(self.follow.mark)
        if pulled and not (events or self.ended or batch.live):
            return None
        return Delivery(events, batch.cursor, batch.live, self.ended)
