"""A subscription: one follower of a channel. Pull a delivery, deal with it, pull the next.

It has no queue and no task. Between two pulls it costs little, however far behind it is, and
cancelling a pull loses nothing: what was not returned comes with the next one.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import trio

from perdure.runtime.kernel.errors import translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.eventlog.follow import Batch, Follow
    from perdure.eventlog.record import Record
    from perdure.runtime.kernel.channels.channel import Channel, InitialPages, Opening
    from perdure.runtime.kernel.channels.event import ChannelEvent


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
    """A channel, a filter and a place."""

    def __init__(
        self,
        channel: Channel,
        opening: Opening,
        follow: Follow,
        *,
        limit: int,
        initial: InitialPages | None = None,
    ) -> None:
        """Begin with initial pages, if there are any, and go on with what follows.

        ``follow`` pulls everything of a stream whose end is the end, and not only what passes.
        Subscriptions with the same ``key`` get the same events.
        """
        self.channel = channel
        self.where = opening.where
        self.ends_with = opening.ends_with
        self.follow = follow
        self.key = (channel.name, opening.where.key, opening.ends_with)
        self._has_ended = opening.has_ended
        self._limit = limit
        self._initial = initial
        self._looked = False

    @property
    def cursor(self) -> str | None:
        """The cursor up to which everything was delivered; None during the initial pages."""
        return None if self._initial is not None else self.follow.cursor

    async def next_delivery(self, limit: int | None = None, *, wait: bool = True) -> Delivery:
        """Wait for events, for the live edge, or for a heartbeat.

        A delivery has ``limit`` events, and the rest of those of its last record. Without ``wait``
        nothing is waited for at the live edge.
        """
        limit = self._limit if limit is None else min(limit, self._limit)
        try:
            if self._initial is not None:
                return await self._next_initial(self._initial, limit)
            while True:
                batch = await self.follow.next_batch(limit, wait=wait)
                batch, events = self._within(limit, batch)
                with trio.CancelScope(shield=True):  # the place has moved: nothing may get lost
                    end = await self._ends(batch.records, live=batch.live)
                if events or end or batch.live or not batch.records:
                    return Delivery(events, batch.cursor, batch.live, end)
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

    def _within(self, limit: int, batch: Batch) -> tuple[Batch, list[ChannelEvent]]:
        """Show a batch; if its records give too many events, go back to one that is enough."""
        events = self.channel.events(self._passing(batch.records))
        if len(events) <= limit:
            return batch, events
        shown = 0
        for count, record in enumerate(batch.records, 1):
            shown += len(self.channel.events(self._passing([record])))
            if shown >= limit and count < len(batch.records):
                batch = self.follow.give_back(batch, count)
                return batch, self.channel.events(self._passing(batch.records))
        return batch, events

    def _passing(self, records: Sequence[Record]) -> Sequence[Record]:
        if self.ends_with is None:
            return records
        return [record for record in records if self.where.matches(record)]

    async def _next_initial(self, initial: InitialPages, limit: int) -> Delivery:
        events = await initial.next_page(limit)
        if initial.more:
            return Delivery(events, None, live=False, end=False)
        self._initial = None
        return Delivery(events, self.follow.cursor, live=False, end=False)

    async def _ends(self, records: Sequence[Record], *, live: bool) -> bool:
        """Tell whether nothing will follow: by the last record, or because it ended before."""
        if self._has_ended is None:
            return False
        if records:
            return any(record.seal and record.stream == self.ends_with for record in records)
        if live and not self._looked:
            self._looked = True
            return await self._has_ended(self.follow.mark)
        return False
