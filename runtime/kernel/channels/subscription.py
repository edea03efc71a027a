"""One follower of a channel: pull a delivery, deal with it, pull the next.

It has no queue and no task. Between two pulls it costs little, however far behind it is, and
cancelling a pull loses nothing: what was not returned comes with the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import trio

from perdure.runtime.kernel.errors import translated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from perdure.eventlog.filter import Filter
    from perdure.eventlog.follow import Follow
    from perdure.eventlog.record import Mark, Record
    from perdure.runtime.kernel.channels.channel import Channel
    from perdure.runtime.kernel.channels.event import Shown
    from perdure.runtime.runs.open_runs import Listing

    HasEnded = Callable[[Mark], Awaitable[bool]]


class Delivery(NamedTuple):
    """Some events in order, and the cursor that leads on from here.

    The cursor is None while the runs that exist are still being listed. ``live`` says that nothing
    newer was known, ``end`` that nothing will follow. Without events it is a heartbeat.
    """

    shown: Sequence[Shown]
    cursor: str | None
    live: bool
    end: bool


class Following:
    """A channel, a filter and a place."""

    def __init__(
        self,
        channel: Channel,
        where: Filter,
        follow: Follow,
        *,
        limit: int,
        has_ended: HasEnded | None = None,
        listing: Listing | None = None,
    ) -> None:
        """Begin with a listing, if there is one, and go on with what follows.

        Those with the same ``key`` want the same.
        ``has_ended`` tells whether what is followed had ended at a place, if it can end at all;
        then all of it is pulled, and not only what passes the filter.
        """
        self.channel = channel
        self.where = where
        self.follow = follow
        self.key = (channel.name, where.streams, frozenset(where.fields.items()))
        self._limit = limit
        self._has_ended = has_ended
        self._listing = listing
        self._looked = False

    @property
    def cursor(self) -> str | None:
        """The cursor up to which everything was delivered; None while runs are being listed."""
        return None if self._listing is not None else self.follow.cursor

    async def next_delivery(self, limit: int | None = None, *, wait: bool = True) -> Delivery:
        """Wait for events, ``limit`` of them at most, for the live edge, or for a heartbeat.

        Without ``wait`` nothing is waited for at the live edge.
        """
        limit = self._limit if limit is None else min(limit, self._limit)
        try:
            if self._listing is not None:
                return await self._next_listed(limit)
            while True:
                batch = await self.follow.next_batch(limit, wait=wait)
                shown = self.channel.shown(self._passing(batch.records))
                with trio.CancelScope(shield=True):  # the place has moved: nothing may get lost
                    end = await self._ends(batch.records, live=batch.live)
                if shown or end or batch.live or not batch.records:
                    return Delivery(shown, batch.cursor, batch.live, end)
        except Exception as error:
            raise translated(error) from error

    def cursors(self, delivery: Delivery) -> list[str | None]:
        """Give the cursor that leads on from each event of a delivery, where there is one."""
        if not delivery.shown:
            return []
        if delivery.shown[0].is_listed:
            return [*[None] * (len(delivery.shown) - 1), delivery.cursor]
        return [*map(self.follow.cursor_at, [s.mark for s in delivery.shown[:-1]]), delivery.cursor]

    def _passing(self, records: Sequence[Record]) -> Sequence[Record]:
        if self._has_ended is None:
            return records
        return [record for record in records if self.where.matches(record)]

    async def _next_listed(self, limit: int) -> Delivery:
        assert self._listing is not None  # noqa: S101 - whoever calls has looked
        shown = await self._listing.next_page(limit)
        if self._listing.more:
            return Delivery(shown, None, live=False, end=False)
        self._listing = None
        return Delivery(shown, self.follow.cursor, live=False, end=False)

    async def _ends(self, records: Sequence[Record], *, live: bool) -> bool:
        """Tell whether nothing will follow: by the last record, or because it ended before."""
        if self._has_ended is None:
            return False
        if records:
            return bool(records[-1].seal)
        if live and not self._looked:
            self._looked = True
            return await self._has_ended(self.follow.mark)
        return False
