"""Delivery: what an execution has put out goes into the log, in few appends.

Items leave soon, reports when their window opens, and a step at once, with all that waits. What was
taken from the outbox is said to the end; so nothing is taken before it can be said.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from perdure.actors.errors import Fenced
from perdure.actors.run.commands import Deliver
from perdure.eventlog.errors import LogClosed
from perdure.eventlog.units import NANOSECONDS
from perdure.runtime.plugins.contract import PluginError, RunCancelled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure.actors.folded import Folded
    from perdure.actors.run.core import Run
    from perdure.actors.run.events import ChildStarted, Output
    from perdure.runtime.execution.execution import Execution
    from perdure.runtime.execution.executor import Executor
    from perdure.runtime.execution.outbox import RunOutbox

OUTPUT_FLOOD: Final = "OUTPUT_FLOOD"
_FLOODED: Final = "the entry logs without end; most of it was dropped"
FLUSH_AFTER: Final = 0.05  # seconds an output waits for company


class OutputDelivery:
    """The way of an execution's outputs into the log."""

    def __init__(self, execution: Execution, executor: Executor, outbox: RunOutbox) -> None:
        """Nothing waits yet."""
        self.outbox = outbox
        self.turn = trio.StrictFIFOLock()  # one at a time says something
        self._execution = execution
        self._children = executor.children
        self._env = executor.context.env
        self._room = trio.Event()
        self._item_came = trio.Event()
        self._flushing = False

    def something_waits(self) -> None:
        """See to it that the outbox is flushed soon; a flood ends the run."""
        if self.outbox.is_flooded:
            self._execution.break_off(PluginError(OUTPUT_FLOOD, _FLOODED))
        if not self._flushing:
            self._flushing = True
            self._execution.start(self._flush)
        elif self.outbox.has_items:
            self._item_came.set()

    async def room(self) -> None:
        """Wait while too many exports are on their way."""
        while self.outbox.is_full:
            self.something_waits()
            await self._room.wait()

    async def hand_over(self, *outputs: Output) -> None:
        """Put outputs into the log, with all that waits, and return when they are there."""
        async with self.turn:
            command = self._take(*outputs)
            if command.outputs:
                await self._say(partial(self._execution.ask, command))

    async def start_child(
        self, started: ChildStarted, plugin_id: str, entry_id: str, args: dict[str, Any]
    ) -> None:
        """Put the start of a child into the log, together with the child."""
        child = await self._execution.secrets.accept_child(
            started.child_run_id, plugin_id, entry_id, args
        )
        parent = self._execution.run
        async with self.turn:
            take = partial(self._take, started)
            await self._say(partial(self._children.start, parent, started, child, take))

    def _take(self, *outputs: Output) -> Deliver:
        """Take all that may leave now, and make room."""
        now = self._execution.now()
        taken = self.outbox.take(now)
        self._room.set()
        self._room = trio.Event()
        return Deliver(epoch=self._execution.epoch, outputs=(*taken, *outputs), at=now)

    async def _flush(self) -> None:
        """Hand over what waits until nothing does: items soon, reports when their window opens."""
        while (due := self.outbox.due(self._execution.now())) is not None:
            wait = max(FLUSH_AFTER, (due - self._execution.now()) / NANOSECONDS)
            self._item_came = trio.Event()
            if self.outbox.has_items:
                await self._env.sleep(FLUSH_AFTER)
            else:
                with trio.move_on_after(wait) as waiting:
                    await self._item_came.wait()
                if not waiting.cancelled_caught:
                    continue
            await self.hand_over()
        self._flushing = False

    async def _say(self, say: Callable[[], Awaitable[Folded[Run]]]) -> None:
        """Say something as the execution in charge, to the end; when it is not heard, stop."""
        try:
            with trio.CancelScope(shield=True):
                folded = await say()
                # A clock that was set back is behind what is stored, and reports go by it.
                self.outbox.stored(min(folded.commit_time, self._execution.now()))
        except (Fenced, LogClosed) as unheard:
            self._execution.stop_silently()
            await trio.lowlevel.checkpoint()  # where the entry stops, unless it shields itself
            raise RunCancelled(str(unheard)) from unheard
