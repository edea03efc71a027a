"""Following the log: a place, a filter, and one batch in flight.

A follower pulls. It has no queue and no task: between two pulls it costs a few hundred bytes,
however far behind it is. What is recent comes from the shared tail; what is older is read from the
store in pages until the tail is reached, with no gap and no duplicate. Cancelling a pull loses
nothing: the place moves only together with the batch that is returned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import trio

from perdure.eventlog.env import FaultPoint
from perdure.eventlog.filter import EVERYTHING, Filter
from perdure.eventlog.store import Bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.eventlog.env import Env
    from perdure.eventlog.record import Mark, Record
    from perdure.eventlog.store import StoredPage
    from perdure.eventlog.tail import Tail

BATCH_RECORDS: Final = 1000
BATCH_BYTES: Final = 256 << 10
HEARTBEAT: Final = 15.0  # seconds; shorter than the idle time-outs of common proxies


class Batch(NamedTuple):
    """Records that passed the filter, and the cursor to go on from.

    ``live`` says that nothing newer was known. An empty batch is a heartbeat: its cursor has moved
    past records that did not match.
    """

    records: Sequence[Record]
    cursor: str
    live: bool


class FollowedLog(Protocol):
    """What a follower needs of its log."""

    env: Env
    tail: Tail

    def cursor(self, mark: Mark) -> str:
        """Give the cursor for a place."""

    def raise_if_closed(self) -> None:
        """Raise LogClosed once the log no longer works."""

    async def read_where(self, where: Filter, after: int, bounds: Bounds) -> StoredPage:
        """Read a page by the index that suits the filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowLimits:
    """How large a batch may be, and how long a follower may stay silent.

    A follower that meets a damaged record gets DamagedRecord, unless it passes damage over.
    """

    records: int = BATCH_RECORDS
    bytes: int = BATCH_BYTES
    heartbeat: float = HEARTBEAT
    pass_damage: bool = False


class Heartbeat(NamedTuple):
    """When a follower is to hear how far the log is, although nothing matched."""

    after: float  # seconds of silence
    position: int  # what it has heard of
    at: float

    @classmethod
    def told(cls, after: float, position: int, now: float) -> Heartbeat:
        """Begin to count the silence: a position was told just now."""
        return cls(after, position, now + after)

    def due_at(self, position: int) -> float:
        """Give the time at which to tell a position; never, if that is nothing new."""
        return self.at if position > self.position else math.inf


class Follow:
    """One follower's place in the log."""

    def __init__(
        self,
        source: FollowedLog,
        start: Mark,
        where: Filter = EVERYTHING,
        limits: FollowLimits | None = None,
    ) -> None:
        """Begin after a place that the log has resolved."""
        self._source = source
        self._mark = start
        self._where = where
        self._limits = limits or FollowLimits()
        self._told_live = False
        self.heartbeat = self._told()  # put back what it was if a batch was not passed on

    @property
    def mark(self) -> Mark:
        """The place up to which everything that matches has been returned."""
        return self._mark

    @property
    def cursor(self) -> str:
        """The cursor up to which everything that matches has been returned."""
        return self._source.cursor(self._mark)

    def cursor_at(self, mark: Mark) -> str:
        """The cursor for any place in the followed log."""
        return self._source.cursor(mark)

    def __aiter__(self) -> Follow:
        """Iterate over batches, for ever."""
        return self

    async def __anext__(self) -> Batch:
        """Give the next batch."""
        return await self.next_batch()

    def move_to(self, mark: Mark) -> None:
        """Go on from a place further on: everything up to there was returned by somebody else."""
        self._mark = mark
        self._told_live = True
        self.heartbeat = self._told()

    def give_back(self, batch: Batch, count: int) -> Batch:
        """Keep so many records of the last batch, one at least; the others come again."""
        records = batch.records[:count]
        self._mark = records[-1].mark
        self.heartbeat = self._told()
        self._told_live = self._told_live and not batch.live
        return Batch(records, self.cursor, live=False)

    async def next_batch(self, limit: int | None = None, *, wait: bool = True) -> Batch:
        """Wait for matching records, for the live edge, or for a heartbeat.

        ``limit`` is for this once, and never more than the follower's own. Without ``wait`` the
        live edge is returned whenever it is reached, and not only the first time.
        """
        await trio.lowlevel.checkpoint()
        limit = self._limits.records if limit is None else min(limit, self._limits.records)
        while True:
            signal = self._source.tail.signal  # taken before looking, so no wake-up is lost
            self._source.raise_if_closed()
            recent = self._source.tail.after(self._mark.position, limit, self._limits.bytes)
            if recent is None:
                matching, live = await self._read_page(limit), False
            else:
                matching, live = self._take_recent(recent)
            arrives = live and not (wait and self._told_live)
            if matching or arrives or self._heartbeat_is_due():
                return self._batch(matching, live=live)
            if live:
                await self._wait(signal)
            else:
                await trio.lowlevel.checkpoint()  # passing many by takes time; let others in

    async def _read_page(self, limit: int) -> list[Record]:
        if self._source.env.faults is not None:
            await self._source.env.faults.reach(FaultPoint.FOLLOW_READ)
        bounds = Bounds(None, limit, self._limits.bytes, self._limits.pass_damage)
        page = await self._source.read_where(self._where, self._mark.position, bounds)
        matching = self._select(page.records)
        self._mark = page.records[-1].mark if page.more else max(page.head, self._mark)
        return matching

    def _take_recent(self, recent: list[Record]) -> tuple[list[Record], bool]:
        matching = self._select(recent)
        if recent:
            self._mark = recent[-1].mark
        return matching, self._mark.position >= self._source.tail.head.position

    def _select(self, records: list[Record]) -> list[Record]:
        if self._where.lets_everything_pass:
            return records
        return [record for record in records if self._where.matches(record)]

    def _told(self) -> Heartbeat:
        now = self._source.env.monotonic()
        return Heartbeat.told(self._limits.heartbeat, self._mark.position, now)

    def _heartbeat_is_due(self) -> bool:
        return self._source.env.monotonic() >= self.heartbeat.due_at(self._mark.position)

    def _batch(self, records: Sequence[Record], *, live: bool) -> Batch:
        self._told_live = self._told_live or live
        self.heartbeat = self._told()
        return Batch(records, self.cursor, live)

    async def _wait(self, signal: trio.Event) -> None:
        if self._source.env.faults is not None:
            await self._source.env.faults.reach(FaultPoint.FOLLOW_WAIT)
        with trio.move_on_at(self.heartbeat.due_at(self._mark.position)):
            await self._source.tail.wait(signal)
