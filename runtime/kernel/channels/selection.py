"""A selection: what a follower asked for, and the one place that says what it gets of some records.

Two shells ask it. A ``Subscription`` that is behind pulls records from its place on; ``Groups``
push what was just committed to all who are live. Both give it records in order and do as it says,
so a follower sees the same however its records came, and in whatever pieces. Without I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from perdure.eventlog.filter import Filter

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from perdure.eventlog.record import Record
    from perdure.runtime.kernel.channels.channel import Channel
    from perdure.runtime.kernel.channels.event import ChannelEvent


class Portion(NamedTuple):
    """What the first of some records give: the cursor stands after the last one that was taken."""

    events: list[ChannelEvent]
    taken: int  # records, whether they pass or not
    end: bool  # nothing will follow


class Selection:
    """What passes of a channel, with whose end it ends, and how many events come at once.

    Followers with the same ``key`` get the same events. Records are read by the filter ``read``:
    if the end of a stream is the end, that is all of it, so that the end is seen.
    """

    __slots__ = ("channel", "ends_with", "key", "limit", "read", "where")

    key: Hashable

    def __init__(
        self, channel: Channel, where: Filter, ends_with: str | None, *, limit: int
    ) -> None:
        """Let pass what ``where`` lets pass of the channel's own events."""
        self.channel = channel
        self.where = where & Filter(names=channel.names)
        self.ends_with = ends_with
        self.limit = limit
        self.key = (channel.name, self.where.key, ends_with, limit)
        self.read = self.where
        if ends_with is not None:
            self.read = Filter(streams=where.streams, scopes=where.scopes)

    def portion(
        self,
        records: Sequence[Record],
        limit: int,
        *,
        read: Filter,
        shown: Callable[[Sequence[Record]], list[ChannelEvent]],
    ) -> Portion:
        """Give ``limit`` events of records that were read by a filter.

        The events of a record stay together, so there may be more by the rest of the last one.
        """
        passes = None if read is self.where else self.where.matches
        events: list[ChannelEvent] = []
        first = 0
        if passes is None:  # most records have one event each, so as many as may be are taken
            events = shown(records[:limit])
            first = limit
            if len(events) > limit:
                events, first = [], 0
        taken = len(records)
        for number in range(first, len(records)):
            if passes is None or passes(records[number]):
                more = shown(records[number : number + 1])
                if more and len(events) >= limit:
                    taken = number
                    break
                events += more
        return Portion(self._thinned(events), taken, self._ends_in(records, taken))

    def _thinned(self, events: list[ChannelEvent]) -> list[ChannelEvent]:
        """Let each report be told by the next event on its subject, if there is one.

        A follower that lags behind is told where a run is, not each step of how it got there.
        """
        if self.channel.names is None or not any(event.is_report for event in events):
            return events  # the records themselves are no reports
        kept: dict[int, ChannelEvent] = {}
        reports: dict[str | None, int] = {}  # that nothing has followed yet, by their subject
        for number, event in enumerate(events):
            before = reports.pop(event.subject, None)
            kept[number] = event if before is None else event.after(kept.pop(before))
            if event.is_report:
                reports[event.subject] = number
        return list(kept.values())

    def _ends_in(self, records: Sequence[Record], taken: int) -> bool:
        """Tell whether the stream with which the follow ends is sealed by one that was taken."""
        if self.ends_with is None:
            return False
        return any(record.seal and record.stream == self.ends_with for record in records[:taken])
