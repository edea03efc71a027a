"""One activation of a run: the entry is called, and what it does goes into the log.

An execution is a guest of its run. Everything it says carries its epoch; when it is refused because
another has taken over, it stops and says nothing more. It ends the run with one command that holds
its last outputs and its outcome. What it may do at any moment is told by its state, which moves
only as the table of ``perdure.actors.run.activation`` allows.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from perdure.actors.errors import Fenced
from perdure.actors.run.activation import Activation, Happening, advance
from perdure.actors.run.commands import Deactivate, Deliver, Finish
from perdure.actors.run.item_id import item_number
from perdure.actors.run.status import CancelMode, Outcome
from perdure.actors.run.stopped import canceled, end_of_stopped
from perdure.runtime.execution.delivery import OutputDelivery
from perdure.runtime.execution.escalation import Escalation
from perdure.runtime.execution.inline_port import InlinePort
from perdure.runtime.execution.outbox import RunOutbox
from perdure.runtime.execution.outcome import SUCCESS, Ending, ending_of_value, error_of
from perdure.runtime.execution.run_secrets import RunSecrets
from perdure.runtime.execution.waits import Waiting
from perdure.runtime.plugins.contract import RunCancelled
from perdure.runtime.plugins.error_text import is_cancellation, traced
from perdure.runtime.secrets.logged_run import LoggedRun, entry_at_work

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure.actors.folded import Folded
    from perdure.actors.run.commands import RunCommand
    from perdure.actors.run.core import Run
    from perdure.actors.run.history import History
    from perdure.runtime.execution.executor import Executor
    from perdure.runtime.plugins.plugin import Entry


class Execution:
    """An entry at work, under one epoch of its run."""

    def __init__(
        self, executor: Executor, folded: Folded[Run], entry: Entry, history: History
    ) -> None:
        """Begin where the history ends. The run has just been activated."""
        context = executor.context
        self.run = folded.state
        self.history = history
        self.epoch = folded.state.epoch
        self.state = Activation.WORKING
        self._executor = executor
        self._entry = entry
        self._env = context.env
        self.secrets = RunSecrets(executor, entry, self.run.created)
        self.redactor = self.secrets.redactor
        self.outbox = RunOutbox(
            self.redactor,
            self.run.created.trace_id,
            history,
            self.run.started_at or 0,
            progress_items=context.limits.progress_items,
        )
        self.delivery = OutputDelivery(self, executor, self.outbox)
        self.escalation = Escalation(self, context)
        self.blobs = context.blobs
        self.inline_limit = context.limits.inline_limit
        self.changed = trio.Event()  # what is known of the run
        self.waiting = Waiting(self)
        self._work = trio.CancelScope()
        self._helpers: set[trio.CancelScope] = set()  # of a flush, of the escalation
        self._failure: Exception | None = None  # what has failed, once that stopped the entry

    # Its life

    async def execute(self) -> None:
        """Call the entry and end the run, unless another activation takes over meanwhile."""
        self._heed_cancel()
        ending = self._counting(await self._call())
        goes_down = trio.current_effective_deadline() == -inf  # the next host goes on from here
        self._happens(Happening.ABANDON if goes_down else Happening.RETURN)
        for helper in list(self._helpers):
            helper.cancel()
        if not self.state.is_silent:
            with trio.CancelScope(shield=True):
                await self._end(ending)

    def _happens(self, happening: Happening) -> None:
        """Take in what has happened; an entry that is to stop is interrupted."""
        before, self.state = self.state, advance(self.state, happening)
        if self.state.is_stopping and not before.is_stopping:
            self._work.cancel()
            self.escalation.begin_grace()

    def start(self, helper: Callable[[], Awaitable[None]]) -> bool:
        """Start a task that ends with this execution; if it fails, the run does.

        Tell whether there was still time for it.
        """
        if not self.state.entry_is_at_work:
            return False
        scope = trio.CancelScope()
        self._helpers.add(scope)
        return self._executor.start(partial(self._help, scope, helper))

    async def _help(self, scope: trio.CancelScope, helper: Callable[[], Awaitable[None]]) -> None:
        with scope:
            try:
                await helper()
            except Exception as error:  # noqa: BLE001 - the edge of a task: it ends its run only
                self.break_off(error)
        self._helpers.discard(scope)

    async def _call(self) -> Ending | None:
        """Call the entry; give the ending it comes to, if it does."""
        port = InlinePort(self)
        ending: Ending | None = None
        created, loop = self.run.created, trio.lowlevel.current_trio_token()
        logged = LoggedRun(created.run_id, created.trace_id, self.redactor, self.log, loop)
        with entry_at_work(logged), self._work:
            try:
                args = await self.secrets.arguments()
                value = await self._executor.call(self, self._entry, port, args)
                ending = await self._value_returned(port, value)
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
        return ending

    async def _end(self, ending: Ending) -> None:
        """Say the last word: the end of the run, or that it is let go of."""
        async with self.delivery.turn:
            if self.state.is_silent:
                return
            now = self.now()
            outputs = self.outbox.take(now, last=True)
            try:
                if not self.state.lets_go:
                    await self.ask(
                        Finish(
                            epoch=self.epoch,
                            outcome=ending.outcome,
                            error=ending.error,
                            outputs=outputs,
                            at=now,
                        )
                    )
                    return
                if outputs:
                    await self.ask(Deliver(epoch=self.epoch, outputs=outputs, at=now))
                await self.ask(Deactivate(epoch=self.epoch, at=now))
            except Fenced:
                self._happens(Happening.FENCE)

    async def end_without_entry(self) -> None:
        """End the run although its entry, which was told to stop, is still at work."""
        ending = self._stopped()
        self._happens(Happening.FORCE)
        with trio.CancelScope(shield=True):
            await self._end(ending)

    # How it ends

    def _counting(self, own: Ending | None) -> Ending:
        """Give the ending that counts: of an entry that was stopped, only its success does."""
        if own is not None and (own is SUCCESS or self.state is Activation.WORKING):
            return own
        return self._stopped()

    def _stopped(self) -> Ending:
        if self._failure is not None:
            return Ending(Outcome.FAILED, error_of(self._failure, self.redactor))
        return Ending(*end_of_stopped(self.run.created, self.run.cancel))

    async def _value_returned(self, port: InlinePort, value: Any) -> Ending:  # noqa: ANN401
        is_result = value is not None and not self.outbox.marked_a_result
        ending = ending_of_value(value, is_result=is_result, redactor=self.redactor)
        if ending is SUCCESS and is_result:
            with trio.CancelScope(shield=True):  # the entry has done its work
                number = await port.exports.export_returned(value)
            self.outbox.result((number,), self.now())
        return ending

    def _failed(self, error: BaseException) -> Ending:
        if is_cancellation(error):
            return Ending(Outcome.CANCELED, canceled(self.cancel_reason))
        if trace := traced(error):
            self.log("error", trace)
        return Ending(Outcome.FAILED, error_of(error, self.redactor))

    # What happens to it

    def see(self, run: Run) -> None:
        """Learn what has become of the run: an answer, a cancel request, its end."""
        self.run = run
        if run.status.is_terminal:
            self._happens(Happening.ENDED)
        elif run.epoch != self.epoch or not run.active:
            self._happens(Happening.FENCE)
        self.notify()
        if run.cancel_mode is not None:
            self._heed_cancel()

    def notify(self) -> None:
        """Wake those who wait for news."""
        self.changed.set()
        self.changed = trio.Event()

    def _heed_cancel(self) -> None:
        if self.state.is_silent:
            return
        mode = self.run.cancel_mode
        if mode is not None and mode >= CancelMode.INTERRUPT:
            self.interrupt()
        if mode is CancelMode.FORCE:
            self.escalation.forced.set()
        self.escalation.consider()

    def interrupt(self) -> None:
        """Stop the entry: it was asked to end and does not, or its time is up."""
        self._happens(Happening.INTERRUPT)

    def break_off(self, error: Exception) -> None:
        """Stop the entry; unless something else counts more, its run has failed with this."""
        self._happens(Happening.BREAK)
        if self.state is Activation.BROKEN and self._failure is None:
            self._failure = error

    def drain(self) -> None:
        """Stop without ending the run: the next host goes on from here."""
        self._happens(Happening.DRAIN)

    def stop_silently(self) -> None:
        """Say nothing more: another is in charge, or nobody hears it."""
        self._happens(Happening.FENCE)

    # What ctx.run needs

    def rests(self, by: int) -> None:
        """Count among those that only wait, or no more; one with a process or a thread never."""
        if self._entry.where == "inline":
            self._executor.rest(by)

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

    async def stop_if_over(self) -> None:
        """Begin nothing new for a run that no longer waits for this entry."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self.state.hears_its_entry:  # which an entry that shields itself has not heard
            raise RunCancelled("the run goes on, or has ended, without this entry")

    async def in_thread(self, fn: Callable[[], Any]) -> Any:  # noqa: ANN401 - what it returns
        """Call a function in a thread; when the run ends without it, it is left behind."""
        return await self._env.run_and_leave(fn, limiter=self._executor.threads)

    def now(self) -> int:
        """Wall time."""
        return self._env.now()

    def chance(self) -> float:
        """Give a number from 0 to 1 by chance."""
        return self._env.random.random()

    def new_id(self) -> str:
        """Mint an id."""
        return str(self._env.new_id())

    def reached(self, step: str) -> None:
        """Come by a step that has its outcome in the log."""
        self.outbox.reached(step)

    def log(self, level: str, text: str) -> None:
        """Log a line that the entry has printed, or given to the standard logging module."""
        if self.state.hears_its_entry:
            self.outbox.log(level, text, self.now())
            self.delivery.something_waits()

    async def has_export(self, item_id: str) -> bool:
        """Tell whether an item exists that this run may refer to."""
        named = item_number(item_id)
        if named is not None and named[0] == self.run.created.run_id:
            return named[1] <= self.outbox.exports
        return await self._executor.has_export(self.run, item_id)

    async def ask(self, command: RunCommand) -> Folded[Run]:
        """Ask the run; give it as it is then."""
        return await self._executor.ask(self.run.created.run_id, command)


def _apart(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """Give what cancels us and what the entry has raised."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)
    return None, error
