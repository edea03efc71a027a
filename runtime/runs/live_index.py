"""The catalogue of runs: the directory, kept up to date with the log.

A list is true at a cursor: it waits until the projection has come to the head of the log as it was
when the question arrived.
"""

from __future__ import annotations

import logging
import sqlite3
from typing import TYPE_CHECKING, Final

import trio

from perdure.eventlog.filter import Filter
from perdure.eventlog.follow import FollowLimits
from perdure.eventlog.record import START, Mark
from perdure.runtime.kernel.projection import is_damage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.eventlog.log import EventLog
    from perdure.runtime.runs.index import Directory, Listed, RunFilter

LINGER: Final = 0.1  # seconds; what nobody asks for is taken in together
PAUSE: Final = 1.0  # seconds; before a file that could not be used is tried again
CHANGES: Final = Filter(fields={"changed": frozenset({True})})
_log = logging.getLogger("perdure.catalogue")
EVERY_COMMIT: Final = FollowLimits(heartbeat=0)  # so that nobody waits for what does not concern us


class Catalogue:
    """A directory that follows its log."""

    def __init__(self, log: EventLog, directory: Directory) -> None:
        """Nothing is read before ``run``."""
        self._log = log
        self._directory = directory
        self._reached = START
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
                    await self._log.in_thread(self._directory.rebuild)
                    damaged = False
                await self._follow(task_status)
            except (sqlite3.DatabaseError, OSError) as error:
                if is_damage(error):
                    damaged = True
                    self._reached = START  # nothing can be listed until it is taken in again
                self._tell(error)
                await self._log.env.sleep(PAUSE)

    def _tell(self, error: Exception) -> None:
        """Log what is wrong; while nothing can be written, once."""
        if is_damage(error):
            _log.error("the directory of runs is damaged; it is built anew", exc_info=error)
        elif not self._stuck:
            self._stuck = True
            _log.error("the directory of runs cannot be written now; lists wait", exc_info=error)

    async def _follow(self, task_status: trio.TaskStatus[None]) -> None:
        self._reached = await self._place()
        follow = await self._log.follow(self._reached, CHANGES, EVERY_COMMIT)
        while True:
            batch = await follow.next_batch()
            if batch.records:
                await self._log.in_thread(
                    self._directory.take_in, batch.records, self._log.generation, follow.mark
                )
                self._stuck = False
            self._reached = follow.mark
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
        """Find where the directory stands in this log; start anew if it does not fit."""
        mark = await self._log.in_thread(self._directory.place, self._log.store)
        if mark is None:
            await self._log.in_thread(self._directory.start_anew)
            return START
        return mark

    async def list(
        self,
        where: RunFilter,
        *,
        before: int | None = None,
        at: Mark | None = None,
        limit: int = 50,
    ) -> tuple[Sequence[Listed], Mark]:
        """List runs, newest first, and say at which place in the log this is true."""
        true_at = at or await self._log.head()
        await self._come_to(true_at)
        found = await self._log.in_thread(
            lambda: self._directory.runs(where, before=before, at=true_at.position, limit=limit)
        )
        return found, true_at

    async def count(self, where: RunFilter, at: Mark) -> int:
        """Count runs, as things stood at a place."""
        await self._come_to(at)
        return await self._log.in_thread(lambda: self._directory.count(where, at=at.position))

    async def statuses(self) -> dict[str, int]:
        """Count runs by status, as far as they have been taken in: a moment ago."""
        if self._reached == START:
            return {}
        return await self._log.in_thread(self._directory.statuses)

    async def open_runs(self, after: int = 0) -> Sequence[Listed]:
        """List runs that have not ended, oldest first, a page after a position."""
        await self._come_to(await self._log.head())
        return await self._log.in_thread(self._directory.open_runs, after)

    async def _come_to(self, mark: Mark) -> None:
        self._waiting += 1
        self._wanted.set()
        try:
            while self._reached.position < mark.position:
                await self._moved.wait()
        finally:
            self._waiting -= 1
