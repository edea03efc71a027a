"""A live listing: its tables are kept up to date with the log.

A list is true at a cursor: it waits until the tables have come to the head of the log as it was
when the question arrived.
"""

from __future__ import annotations

import logging
import sqlite3
from typing import TYPE_CHECKING, Final

import trio

from perdure.eventlog.follow import FollowLimits
from perdure.eventlog.record import START, Mark
from perdure.runtime.kernel.projection import is_damage

if TYPE_CHECKING:
    from perdure.eventlog.log import EventLog
    from perdure.runtime.kernel.listing import ListingFile

LINGER: Final = 0.1  # seconds; what nobody asks for is taken in together
PAUSE: Final = 1.0  # seconds; before a file that could not be used is tried again
_log = logging.getLogger("perdure.listing")
# So that nobody waits for what does not concern us; a damaged record is missing, and no more.
EVERY_COMMIT: Final = FollowLimits(heartbeat=0, pass_damage=True)


class LiveListing:
    """The tables of a listing, which follow their log."""

    def __init__(self, log: EventLog, tables: ListingFile) -> None:
        """Nothing is read before ``run``."""
        self.log = log
        self.tables = tables
        self.reached = START
        self._moved = trio.Event()
        self._wanted = trio.Event()
        self._waiting = 0
        self._started = False
        self._stuck = False  # since something could not be written

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Catch up with the log, say so, and go on following it.

        A damaged file is built anew. One that cannot be written, on a full disk for example, is
        tried again until it can; until then only lists wait.
        """
        damaged = False
        while True:
            try:
                if damaged:
                    await self.log.in_thread(self.tables.rebuild)
                    damaged = False
                await self._follow(task_status)
            except (sqlite3.DatabaseError, OSError) as error:
                if is_damage(error):
                    damaged = True
                    self.reached = START  # nothing can be listed until it is taken in again
                self._tell(error)
                await self.log.env.sleep(PAUSE)

    def _tell(self, error: Exception) -> None:
        """Log what is wrong; while nothing can be written, once."""
        name = self.tables.listing.name
        if is_damage(error):
            _log.error("the listing %s is damaged; it is built anew", name, exc_info=error)
        elif not self._stuck:
            self._stuck = True
            _log.error("the listing %s cannot be written now; lists wait", name, exc_info=error)

    async def _follow(self, task_status: trio.TaskStatus[None]) -> None:
        self.reached = await self._place()
        follow = await self.log.follow(self.reached, self.tables.listing.where, EVERY_COMMIT)
        while True:
            batch = await follow.next_batch()
            if batch.records:
                await self.log.in_thread(
                    self.tables.take_in, batch.records, self.log.generation, follow.mark
                )
                self._stuck = False
            self.reached = follow.mark
            self._moved.set()
            self._moved = trio.Event()
            if batch.live and not self._started:
                self._started = True
                task_status.started()
            if self._started:
                await self._linger()

    async def _linger(self) -> None:
        """Let changes gather, unless somebody waits for them."""
        self._wanted = trio.Event()
        if not self._waiting:
            with trio.move_on_after(LINGER):
                await self._wanted.wait()

    async def _place(self) -> Mark:
        """Find where the tables stand in this log; start anew if they do not fit."""
        mark = await self.log.in_thread(self.tables.place, self.log.store)
        if mark is None:
            await self.log.in_thread(self.tables.start_anew)
            return START
        return mark

    async def reach(self, mark: Mark) -> None:
        """Wait until the tables hold all that the log held at a place."""
        self._waiting += 1
        self._wanted.set()
        try:
            while self.reached.position < mark.position:
                await self._moved.wait()
        finally:
            self._waiting -= 1
