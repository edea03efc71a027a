"""The tail: the newest records in memory, shared by all followers.

It is bounded in records and bytes and holds no follower's place. Whoever asks for something older
than its floor is told to read the store. ``signal`` is set at the next change: take it *before*
looking, and no wake-up is ever lost.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import trio

from perdure.eventlog.record import Mark, Record

_POSITION: Final = attrgetter("position")


@dataclass(frozen=True, slots=True, kw_only=True)
class TailLimits:
    """How much of the newest past stays in memory."""

    records: int = 8192  # some seconds of a busy log: a follower that keeps up reads no disk
    bytes: int = 16 << 20


class Tail:
    """A window on the newest records."""

    def __init__(self, head: Mark, limits: TailLimits | None = None) -> None:
        """Start empty at the log's head."""
        self.head = head
        self.signal = trio.Event()
        self._limits = limits or TailLimits()
        self._floor = head.position  # everything after this position is here
        self._records: list[Record] = []
        self._bytes = 0
        self._watchers = 0
        self._watched = trio.Event()

    def extend(self, records: Sequence[Record]) -> None:
        """Take in newly committed records and wake whoever waits."""
        if not records:
            return
        if records[0].position != self.head.position + 1:
            self._start_anew(records[0].position - 1)  # never show a gap as if it were none
        self._records.extend(records)
        self._bytes += sum([record.size for record in records])
        self.head = records[-1].mark
        self._trim()
        self.wake()

    def skip_to(self, head: Mark) -> None:
        """Start anew at a head further on: followers read what lies between from the store."""
        self._start_anew(head.position)
        self.head = head
        self.wake()

    def after(self, position: int, limit: int, size: int | None = None) -> list[Record] | None:
        """Give up to ``limit`` records that follow a position; None if that is too long ago.

        With ``size`` they have so many bytes, and the rest of those of the last one.
        """
        if position < self._floor:
            return None
        first = bisect_right(self._records, position, key=_POSITION)
        records = self._records[first : first + limit]
        if size is not None:
            for count, record in enumerate(records, 1):
                size -= record.size
                if size <= 0:
                    return records[:count]
        return records

    def after_in_scope(self, scope: str, position: int, most: int) -> list[Record] | None:
        """Give a scope's records after a position; None if the store finds them sooner.

        That is if it is too long ago, or if more than ``most`` records would have to be looked at.
        """
        recent = self.after(position, most + 1)
        if recent is None or len(recent) > most:
            return None
        return [record for record in recent if record.scope == scope]

    def find(self, position: int) -> Mark | None:
        """Give the place of the record at exactly this position, if it is here."""
        index = bisect_right(self._records, position, key=_POSITION) - 1
        if index < 0 or self._records[index].position != position:
            return None
        return self._records[index].mark

    def wake(self) -> None:
        """Wake all who wait for a change."""
        self.signal.set()
        self.signal = trio.Event()

    async def wait(self, signal: trio.Event) -> None:
        """Wait for a signal that was taken before looking."""
        self._watchers += 1
        self._watched.set()
        try:
            await signal.wait()
        finally:
            self._watchers -= 1

    @property
    def watchers(self) -> int:
        """How many wait for a change."""
        return self._watchers

    async def watched(self) -> None:
        """Wait until somebody waits: a reading process polls only for them."""
        while not self._watchers:
            self._watched = trio.Event()
            await self._watched.wait()

    def _start_anew(self, floor: int) -> None:
        self._records.clear()
        self._bytes = 0
        self._floor = floor

    def _trim(self) -> None:
        """Drop the oldest in one slice, and only when a quarter too much is there."""
        limits = self._limits
        if len(self._records) <= limits.records * 5 // 4 and self._bytes <= limits.bytes * 5 // 4:
            return
        first = 0
        while first < len(self._records) and (
            len(self._records) - first > limits.records or self._bytes > limits.bytes
        ):
            self._bytes -= self._records[first].size
            first += 1
        self._floor = self._records[first - 1].position
        del self._records[:first]
