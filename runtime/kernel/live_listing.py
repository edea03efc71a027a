"""A live listing: its tables are kept up to date with the log, and are asked meanwhile.

An answer is true at a position, which it names. That is at least the head of the log as it was
when the query arrived; only if the tables do not get there soon, since they are being built or
their disk is full, it is the position that they have reached.
"""

from __future__ import annotations

import logging
import sqlite3
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from perdure.eventlog.errors import StoreFailed
from perdure.eventlog.follow import FollowLimits
from perdure.eventlog.record import START, Mark
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.listing import UNREADABLE
from perdure.runtime.kernel.projection import (
    READERS,
    ProjectionClosed,
    is_damage,
    place_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.eventlog.log import EventLog
    from perdure.runtime.kernel.listing import ListingFile, Query

Result = TypeVar("Result")
LINGER: Final = 0.1  # seconds; changes that nobody asks for are taken in together
PAUSE: Final = 1.0  # seconds; before a file that could not be used is tried again
PATIENCE: Final = 3.0  # seconds that a query waits for the tables to come to the head
LONGEST: Final = 10.0  # seconds that a query may take, its turn included
EVERY_COMMIT: Final = FollowLimits(heartbeat=0)  # so that no query waits for other records
_log = logging.getLogger("perdure.listing")


class LiveListing:
    """The tables of a listing, which follow their log."""

    def __init__(self, log: EventLog, tables: ListingFile) -> None:
        """Nothing is read before ``run``."""
        self.log = log
        self.tables = tables
        self.reached: Mark | None = None  # None before the file is open
        self._written = START  # the place mark in the file, not behind ``reached`` by any change
        self._moved = trio.Event()
        self._wanted = trio.Event()
        self._waiting = 0
        self._stuck = False  # since something could not be written
        self._following = trio.CancelScope()
        self._writer = trio.CapacityLimiter(1)  # a long build takes no thread of other readers
        self._readers = trio.CapacityLimiter(READERS)

    async def run(self) -> None:
        """Catch up with the log and go on following it.

        A damaged file is built anew. One that cannot be written, on a full disk for example, is
        tried again until it can; until then answers come from the position that was reached.
        """
        damaged = False
        while True:
            try:
                if damaged:
                    await self._in_writer(self.tables.rebuild)
                    damaged = False
                with trio.CancelScope() as self._following:
                    await self._follow()
                damaged = True  # as a query has found
            except (sqlite3.DatabaseError, OSError, StoreFailed) as error:
                damaged = damaged or is_damage(error)
                self._tell(error)
                await self._pause()
            if damaged:
                self._lose()

    def _lose(self) -> None:
        self.reached, self._written = START, START  # whatever was taken in has to be again

    async def _pause(self) -> None:
        self._move()  # those who wait are answered from what is there
        await self.log.env.sleep(PAUSE)

    def _tell(self, error: Exception) -> None:
        """Log what is wrong; while nothing can be written, once."""
        name = self.tables.listing.name
        if is_damage(error):
            _log.error("the list of %s is damaged; it is built anew", name, exc_info=error)
        elif not self._stuck:
            self._stuck = True
            told = "the list of %s cannot be written now (%s: %s); answers name their position"
            _log.error(told, name, self.tables.path, error)

    async def _follow(self) -> None:
        self.reached = self._written = await self._in_writer(self.tables.begin, self.log.store)
        follow = await self.log.follow(self.reached, self.tables.listing.where, EVERY_COMMIT)
        while True:
            try:
                batch = await follow.next_batch()
            except UNREADABLE:
                mark = await self._in_writer(self.tables.pass_damage, self.log.store, follow.mark)
                follow = await self.log.follow(mark, self.tables.listing.where, EVERY_COMMIT)
                self._written = mark
                continue
            if batch.records:
                generation = self.log.generation
                await self._in_writer(self.tables.take_in, batch.records, generation, follow.mark)
                self._written = follow.mark
            if batch.records or batch.live:
                self._stuck = False
            self.reached = follow.mark
            self._move()
            if batch.live:
                await self._linger()

    def _move(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    async def _linger(self) -> None:
        """Let changes gather, unless a query waits for them."""
        self._wanted = trio.Event()
        if not self._waiting:
            with trio.move_on_after(LINGER):
                await self._wanted.wait()

    # Asking

    @property
    def progress(self) -> tuple[int, int]:
        """The position that was reached, and that of the log's head."""
        return (self.reached or START).position, self.log.tail.head.position

    def catching_up(self) -> tuple[str, Callable[[], tuple[int, int]]]:
        """Name the way to where the log ends now, and give what tells how far it has been gone."""
        end = self.log.tail.head.position
        what = f"records in the list of {self.tables.listing.name}"
        return what, lambda: (min(self.progress[0], end), end)

    async def reach(self, mark: Mark) -> None:
        """Wait until the tables hold all that the log held at a place, however long it takes."""
        await self._wait_for(mark, whatever=True)

    async def ask(self, query: Query[Result], at: Mark | None = None) -> tuple[Result, Mark]:
        """Answer a query, and say at which place this is true: ``at``, if it is stated.

        Raises UNAVAILABLE if the tables do not get there soon, OVERLOADED if it takes too long.
        """
        await self._reach_soon(at or await self.log.head())
        reached, written = self._known(), self._written
        try:
            answer, place = await self._in_reader(partial(self._answer, query, at))
        except (sqlite3.OperationalError, ProjectionClosed) as error:
            if is_damage(error):
                raise  # a query that makes no sense
            raise self._unavailable("its file cannot be read now") from error
        except sqlite3.DatabaseError as error:
            self._tell(error)
            self._lose()
            self._following.cancel()
            raise self._unavailable("it is damaged, and built anew") from error
        if place.position >= written.position:
            place = max(place, reached)  # no change lies between
        if at is None:
            return answer, place
        if place.position < at.position:
            raise self._unavailable(f"it has come to position {place.position:,} only")
        return answer, at

    def _answer(
        self, query: Query[Result], at: Mark | None, unwanted: Callable[[], bool]
    ) -> tuple[Result, Mark]:
        with self.tables.reading(unwanted) as database:
            place = place_in(database)
            past = at.position if at is not None and at.position < place.position else None
            return query(database, past), place

    async def _in_reader(self, work: Callable[[Callable[[], bool]], Result]) -> Result:
        """Work in a thread that reads; it is interrupted when its time is over or nobody waits."""
        unwanted = Event()
        with trio.move_on_after(LONGEST):
            try:
                return await self.log.env.run_and_leave(
                    partial(work, unwanted.is_set), limiter=self._readers
                )
            finally:
                unwanted.set()
        raise OperationError(
            "OVERLOADED",
            f"this took more than {LONGEST:g} s and was given up; state more conditions, or try"
            " again later",
        )

    async def _in_writer(self, work: Callable[..., Result], *args: object) -> Result:
        self.log.raise_if_closed()
        result = await self.log.env.run_sync(work, *args, limiter=self._writer)
        await trio.lowlevel.checkpoint_if_cancelled()  # or a log closed with us is an error
        return result

    async def _reach_soon(self, mark: Mark) -> None:
        with trio.move_on_after(PATIENCE):
            await self._wait_for(mark, whatever=False)

    async def _wait_for(self, mark: Mark, *, whatever: bool) -> None:
        """Wait for the tables to reach a place; unless ``whatever`` happens, while they move."""
        self._waiting += 1
        self._wanted.set()
        try:
            while self.reached is None or self.reached.position < mark.position:
                if self._stuck and not whatever:
                    return
                await self._moved.wait()
        finally:
            self._waiting -= 1

    def _known(self) -> Mark:
        if self.reached is None:
            raise self._unavailable("its file cannot be opened now")
        return self.reached

    def _unavailable(self, why: str) -> OperationError:
        reached, head = self.progress
        return OperationError(
            "UNAVAILABLE",
            f"the list of {self.tables.listing.name} cannot show this now: {why}; try again later",
            position=reached,
            head=head,
        )
