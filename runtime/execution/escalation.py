"""The escalation of one execution: an entry that should end does, or its run ends without it.

What follows, and when, is a rule of the run (``perdure.actors.run.escalation``); here is the task
that waits for it and does it. No other part of the runtime has a timer for an entry that is to end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from perdure.actors.run.commands import RequestCancel
from perdure.actors.run.escalation import Due, Step, next_step
from perdure.actors.run.status import CancelMode
from perdure.eventlog.units import NANOSECONDS

if TYPE_CHECKING:
    from perdure.runtime.execution.execution import Execution
    from perdure.runtime.execution.host_context import HostContext

LOOK_AGAIN: Final = 60.0  # seconds after which the wall clock is read again, if it was set
SHORTEST: Final = 1e-6  # seconds; shorter waits may not move a clock at all
PATIENCE: Final = 1.0  # seconds for a request to be recorded; a full disk keeps no process alive


class Escalation:
    """Sees to the end of one entry."""

    def __init__(self, execution: Execution, context: HostContext) -> None:
        """Nothing is to end yet."""
        self.forced = trio.Event()  # the entry's process is waited for no longer
        self._execution = execution
        self._env = context.env
        self._limits = context.limits
        self._stopped_at: int | None = None
        self._at_work = False
        self._awaited = (0, 0.0)  # an instant, and the monotonic time at which it has surely come

    def begin_grace(self) -> trio.Event:
        """Give the entry, which was told to stop, one grace; give the event that is set then."""
        if self._stopped_at is None:
            self._stopped_at = self._execution.now()
        self._execution.notify()
        self.consider()
        return self.forced

    def consider(self) -> None:
        """See to what follows, if anything does; where no task can be started, wait for nothing."""
        if not self._at_work and self._next() is not None:
            self._at_work = self._execution.start(self._escalate)
            if not self._at_work:
                self.forced.set()

    def _next(self) -> Due | None:
        return next_step(
            self._execution.run,
            self._execution.state,
            self._limits.grace,
            stopped_at=self._stopped_at,
            is_forced=self.forced.is_set(),
        )

    async def _escalate(self) -> None:
        try:
            while (due := self._next()) is not None:
                if await self._has_come(due):
                    await self._do(due.step)
        finally:
            self._at_work = False
            self.forced.set()  # also if the server goes down: it waits for no process

    async def _has_come(self, due: Due) -> bool:
        """Tell whether an instant has come; if not, wait for it, or for news of the run.

        It has come by the wall clock, or after the time that was left when it was first awaited,
        which is never longer than the step's own time: so neither setting the clock forward nor
        setting it back makes the wait longer.
        """
        left = (due.at - self._execution.now()) / NANOSECONDS
        if self._awaited[0] != due.at:
            within = min(left, due.within / NANOSECONDS)
            self._awaited = due.at, self._env.monotonic() + within
        left = min(left, self._awaited[1] - self._env.monotonic())
        if left <= 0:
            return True
        changed = self._execution.changed
        with trio.move_on_after(min(max(left, SHORTEST), LOOK_AGAIN)):
            await changed.wait()
        return False

    async def _do(self, step: Step) -> None:
        match step:
            case Step.INTERRUPT:
                self._execution.interrupt()
            case Step.ASK_HARDER:
                await self._ask_harder()
            case Step.KILL:
                self.forced.set()
            case Step.END:
                self.forced.set()
                await self._execution.end_without_entry()

    async def _ask_harder(self) -> None:
        """Record the next harder request; where the disk refuses it, do what it would have done.

        The run then stays open until its end can be written, and its entry ends all the same.
        """
        mode = CancelMode((self._execution.run.cancel_mode or 0) + 1)
        at = self._execution.now()
        request = RequestCancel(
            by="host", mode=mode, at=at, deadline=self._limits.harder_at(mode, at)
        )
        with trio.move_on_after(PATIENCE):
            run = (await self._execution.ask(request)).state
            if run.epoch != self._execution.epoch:  # the executor tells news to another one
                self._execution.stop_silently()
            return
        self._execution.interrupt()
        stopped_at = self._stopped_at or at
        if mode is CancelMode.FORCE or self._execution.now() >= stopped_at + self._limits.grace:
            self.forced.set()
