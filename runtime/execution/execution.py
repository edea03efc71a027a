"""One activation of a run: the entry is called, and what it does goes into the log.

An execution is a guest of its run. Everything it says carries its epoch; when it is refused because
another has taken over, it stops and says nothing more. It ends the run with one command that holds
its last outputs and its outcome.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from perdure.actors.errors import Fenced
from perdure.actors.run.commands import Deactivate, Deliver, Finish, RequestCancel
from perdure.actors.run.core import canceled, timed_out
from perdure.actors.run.status import CancelIntent, CancelMode, Outcome
from perdure.actors.run.views import item_number
from perdure.eventlog.units import NANOSECONDS
from perdure.runtime.execution.current_run import CurrentRun
from perdure.runtime.execution.delivery import OutputDelivery
from perdure.runtime.execution.limits import LAST_WORDS
from perdure.runtime.execution.outbox import RunOutbox
from perdure.runtime.execution.outcome import SUCCESS, Ending, ending_of_value, error_of
from perdure.runtime.execution.run_context import RunContext
from perdure.runtime.execution.run_secrets import RunSecrets
from perdure.runtime.execution.waits import Waiting
from perdure.runtime.plugins.contract import RunCancelled
from perdure.runtime.plugins.error_text import is_cancellation, traced
from perdure.runtime.secrets.run_logging import LoggedRun, work_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure.actors.folded import Folded
    from perdure.actors.run.commands import RunCommand
    from perdure.actors.run.core import Run
    from perdure.actors.run.history import History
    from perdure.runtime.execution.execution_port import Desk
    from perdure.runtime.plugins.plugin import Entry


class Execution:
    """An entry at work, under one epoch of its run."""

    def __init__(self, desk: Desk, folded: Folded[Run], entry: Entry, history: History) -> None:
        """Begin where the history ends. The run has just been activated."""
        self.run = folded.state
        self.history = history
        self.epoch = folded.state.epoch
        self._desk = desk
        self._entry = entry
        self._started_at = self.run.started_at or 0
        self.secrets = RunSecrets(desk, entry, self.run.created)
        self.redactor = self.secrets.redactor
        self.outbox = RunOutbox(
            self.redactor,
            self.run.created.trace_id,
            history,
            self._started_at,
            progress_items=desk.limits.progress_items,
        )
        self.delivery = OutputDelivery(self, desk, self.outbox)
        self.blobs = desk.blobs
        self.inline_limit = desk.limits.inline_limit
        self._work = trio.CancelScope()
        self.forced = trio.Event()  # nobody waits for the entry any more
        self.changed = trio.Event()  # what is known of the run
        self.waiting = Waiting(self)
        self._helpers: set[trio.CancelScope] = set()  # of a flush, an escalation, a deadline
        self._broken: Exception | None = None
        self._is_over = False
        self._escalating = False
        self._fenced = False
        self._draining = False
        self._ended = False

    # Its life

    async def execute(self) -> None:
        """Call the entry and end the run, unless another activation takes over meanwhile."""
        self._look_at(self.run)
        if self.run.deadline is not None:
            self.start(partial(self._give_up_at, self.run.deadline))
        ending = await self._call()
        self._is_over = True
        for helper in list(self._helpers):
            helper.cancel()
        if trio.current_effective_deadline() == -inf and not self._draining:
            return  # this host is going down: the next one goes on from here
        with trio.CancelScope(shield=True):
            await self._end(ending)

    def start(self, helper: Callable[[], Awaitable[None]]) -> None:
        """Start a task that ends with this execution; if it fails, the run does."""
        if not self._is_over:
            scope = trio.CancelScope()
            self._helpers.add(scope)
            self._desk.start(partial(self._help, scope, helper))

    async def _help(self, scope: trio.CancelScope, helper: Callable[[], Awaitable[None]]) -> None:
        with scope:
            try:
                await helper()
            except Exception as error:  # noqa: BLE001 - the edge of a task: it ends its run only
                self.break_off(error)
        self._helpers.discard(scope)

    def break_off(self, error: Exception) -> None:
        """Stop the entry; its run has failed with this."""
        self._broken = error
        self._work.cancel()

    async def _call(self) -> Ending:
        context = RunContext(CurrentRun(self))
        if self.run.deadline is not None:
            left = (self.run.deadline - self.now()) / NANOSECONDS
            self._work.deadline = trio.current_time() + left
        ending: Ending | None = None
        created, loop = self.run.created, trio.lowlevel.current_trio_token()
        work_for(LoggedRun(created.run_id, created.trace_id, self.redactor, self.log, loop))
        with self._work:
            try:
                args = await self.secrets.arguments()
                value = await self._desk.call(self, self._entry, context, args)
                ending = self._value_returned(value)
            except trio.Cancelled:
                raise
            except BaseException as error:  # the edge of an entry, whatever it raises
                if not trio.lowlevel.in_trio_task():
                    raise  # the event loop is gone, and this is being thrown away
                # An entry with several tasks can fail and be cancelled at once.
                cancelled, failed = _apart(error)
                if failed is not None:
                    ending = self._failed(failed)
                if cancelled is not None:
                    raise cancelled from None
        if ending is None or (self._work.cancel_called and ending is not SUCCESS):
            return self._interrupted()  # what an entry that is stopped still says does not count
        return ending

    async def _end(self, ending: Ending) -> None:
        async with self.delivery.turn:
            if self._fenced or self._ended:
                return
            now = self.now()
            try:
                if self._draining:
                    outputs = self.outbox.take(now, last=True)
                    if outputs:
                        await self.ask(Deliver(epoch=self.epoch, outputs=outputs, at=now))
                    await self.ask(Deactivate(epoch=self.epoch, at=now))
                    return
                await self.ask(
                    Finish(
                        epoch=self.epoch,
                        outcome=ending.outcome,
                        error=ending.error,
                        outputs=self.outbox.take(now, last=True),
                        at=now,
                    )
                )
                self._ended = True
            except Fenced:
                self._fenced = True

    # How it ends

    def _value_returned(self, value: Any) -> Ending:  # noqa: ANN401 - whatever an entry returns
        is_result = value is not None and not self.outbox.marked_a_result
        ending = ending_of_value(value, is_result=is_result, redactor=self.redactor)
        if ending is SUCCESS and is_result:
            number = self.outbox.export("json", value, self.now())
            self.outbox.result((number,), self.now())
        return ending

    def _failed(self, error: BaseException) -> Ending:
        if is_cancellation(error):
            return Ending(Outcome.CANCELED, canceled(self.cancel_reason))
        if trace := traced(error):
            self.log("error", trace)
        return Ending(Outcome.FAILED, error_of(error, self.redactor))

    def _interrupted(self) -> Ending:
        if self._broken is not None:
            return Ending(Outcome.FAILED, error_of(self._broken, self.redactor))
        cancel = self.run.cancel
        if cancel is None or cancel.intent is CancelIntent.TIMEOUT:
            return Ending(Outcome.TIMEOUT, timed_out(self.run))
        return Ending(Outcome.CANCELED, canceled(cancel.reason))

    # What its host tells it

    def see(self, run: Run) -> None:
        """Learn what has become of the run: an answer, a cancel request, its end."""
        if run.epoch != self.epoch or run.status.is_terminal:
            self.stop_silently()  # another is in charge, or nobody any more
        self.run = run
        self.changed.set()
        self.changed = trio.Event()
        self._look_at(run)

    def drain(self) -> None:
        """Stop without ending the run: the next host goes on from here."""
        self._draining = True
        self._work.cancel()

    def _look_at(self, run: Run) -> None:
        if run.cancel_mode is None or run.status.is_terminal:
            return
        if self._is_asked(CancelMode.INTERRUPT):
            self._work.cancel()
        if self._is_asked(CancelMode.FORCE):
            self.forced.set()
        if not self._escalating:
            self._escalating = True
            self.start(self._escalate)

    async def _escalate(self) -> None:
        """Give the entry time to obey, then interrupt it, then end the run without it."""
        for mode in (CancelMode.INTERRUPT, CancelMode.FORCE):
            await self._until_asked(mode, self._desk.limits.cancel_grace)
            if not self._is_asked(mode):
                at = self.now()
                deadline = self._desk.limits.next_step_at(mode, at)
                await self.ask(RequestCancel(by="host", mode=mode, at=at, deadline=deadline))
        await self._desk.env.sleep(LAST_WORDS)
        with trio.CancelScope(shield=True):
            await self._end(self._interrupted())

    async def _give_up_at(self, deadline: int) -> None:
        """End the run when its time is up and its entry, interrupted, still does not end."""
        left = (deadline - self.now()) / NANOSECONDS
        await self._desk.env.sleep(max(0, left) + self._desk.limits.cancel_grace)
        with trio.CancelScope(shield=True):
            await self._end(Ending(Outcome.TIMEOUT, timed_out(self.run)))

    async def _until_asked(self, mode: CancelMode, most: float) -> None:
        """Wait until the run is asked to end in this way, so many seconds at most."""
        with trio.move_on_after(most):
            while not self._is_asked(mode):
                await self.changed.wait()

    def _is_asked(self, mode: CancelMode) -> bool:
        return self.run.cancel_mode is not None and self.run.cancel_mode >= mode

    def stop_silently(self) -> None:
        """Say nothing more: another is in charge, or nobody hears it."""
        self._fenced = True
        self._work.cancel()

    # What ctx.run needs

    def rests(self, by: int) -> None:
        """Count among those that only wait, or no more; one with a process or a thread never."""
        if self._entry.where == "inline":
            self._desk.rest(by)

    @property
    def cancel_requested(self) -> bool:
        """Whether the run was asked to end."""
        return self.run.cancel is not None

    @property
    def cancel_reason(self) -> str | None:
        """Why, if somebody said so."""
        return self.run.cancel.reason if self.run.cancel else None

    async def until_cancelled(self) -> str | None:
        """Wait until the run is asked to end; give the reason."""
        while not self.cancel_requested:
            await self.changed.wait()
        return self.cancel_reason

    @property
    def is_left_behind(self) -> bool:
        """Whether the run no longer waits for its entry."""
        return self._is_over or self._ended or self._fenced

    async def stop_if_over(self) -> None:
        """Begin nothing new for a run that no longer waits for this entry."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.is_left_behind:  # which an entry that shields itself has not heard
            raise RunCancelled("the run goes on, or has ended, without this entry")

    async def in_thread(self, fn: Callable[[], Any]) -> Any:  # noqa: ANN401 - what it returns
        """Call a function in a thread; when the run ends without it, it is left behind."""
        return await self._desk.env.run_and_leave(fn, limiter=self._desk.threads)

    def now(self) -> int:
        """Wall time."""
        return self._desk.env.now()

    def new_id(self) -> str:
        """Mint an id."""
        return str(self._desk.env.new_id())

    def reached(self, step: str) -> None:
        """Come by a step that has its outcome in the log."""
        self.outbox.reached(step)

    def log(self, level: str, text: str) -> None:
        """Log a line that the entry has printed, or given to the standard logging module."""
        if not self.is_left_behind:
            self.outbox.log(level, text, self.now())
            self.delivery.something_waits()

    async def has_export(self, item_id: str) -> bool:
        """Tell whether an item exists that this run may refer to."""
        named = item_number(item_id)
        if named is not None and named[0] == self.run.created.run_id:
            return named[1] <= self.outbox.exports
        return await self._desk.has_export(self.run, item_id)

    async def ask(self, command: RunCommand) -> None:
        """Ask the run."""
        await self._desk.ask(self.run.created.run_id, command)


def _apart(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """Give what cancels us and what the entry has raised."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)
    return None, error
