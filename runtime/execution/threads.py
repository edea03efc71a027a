"""Entries with `where = "thread"`.

A thread cannot be stopped. When its run is canceled or out of time it is left behind: a call of
``ctx.run`` that it waits in ends with RunCancelled, whatever it says later is refused, and what it
returns is thrown away. It has ``ctx.run`` of a plain function.

An entry takes one token of the host's threads and needs no other: the bodies of its steps, and
the pieces of bytes that it exports, are made in its own thread, while the event loop waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import outcome
import trio
import trio.from_thread

from perdure.runtime.plugins.byte_source import Piece
from perdure.runtime.plugins.contract import RunCancelled
from perdure.runtime.plugins.run_context import SyncRunContext
from perdure.runtime.plugins.sync_run import SyncRun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from perdure.runtime.execution.execution import Execution
    from perdure.runtime.execution.inline_port import InlinePort
    from perdure.runtime.plugins.run_messages import Bytes, Call, Report, Step
    from perdure.runtime.plugins.run_port import AboutRun

THREADS: Final = 40  # entries in threads at once; one that was left behind counts until it ends
_END: Final = object()  # of bytes that come piece by piece
_LEFT: Final = "the run has ended without this thread"


class _Errand:
    """A call that a thread has made in the event loop, and what the loop wants done meanwhile."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._came: outcome.Outcome[Any] = outcome.Error(RunCancelled(_LEFT))

    async def run(self, call: Callable[[], Awaitable[Any]]) -> None:
        """Make the call, in the event loop."""
        try:
            with self.scope:
                self._came = outcome.Value(await call())
        except trio.Cancelled:
            raise  # the event loop ends
        except BaseException as error:  # noqa: BLE001 - raised in the thread
            self._came = outcome.Error(error)
        finally:
            self._jobs.put(None)

    async def in_thread(self, fn: Callable[[], Any]) -> Any:  # noqa: ANN401 - what it returns
        """Have a function called in the thread, from the event loop."""
        done = trio.Event()
        came: outcome.Outcome[Any] = outcome.Error(RunCancelled(_LEFT))

        def job() -> None:
            nonlocal came
            came = outcome.capture(fn)
            trio.from_thread.run_sync(done.set)

        self._jobs.put(job)
        await done.wait()
        return came.unwrap()

    def wait(self) -> Any:  # noqa: ANN401 - what the call gives
        """Do what the loop wants done, in the thread, until the call is over; give its outcome."""
        while (job := self._jobs.get()) is not None:
            job()
        return self._came.unwrap()


class ThreadPort:
    """The way to a run from a thread: all is done in the event loop and takes its time there."""

    def __init__(self, inline: InlinePort) -> None:
        """Lead to the run's own port."""
        self.about: AboutRun = inline.about
        self._inline = inline
        self._open: set[_Errand] = set()  # more than one when a step calls for another
        self._is_left = False

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to end."""
        return self._inline.cancelled

    @property
    def cancel_reason(self) -> str | None:
        """Why, if somebody said so."""
        return self._inline.cancel_reason

    def report(self, report: Report) -> None:
        """Bring a report to the loop."""
        trio.from_thread.run_sync(self._report, report)

    async def call(self, call: Call) -> Any:  # noqa: ANN401 - what was asked for
        """Have it done in the loop."""
        return self._in_loop(_Errand(), partial(self._inline.call, call))

    async def step(self, step: Step, body: Callable[[], Any]) -> Any:  # noqa: ANN401 - what it returns
        """Do a step once; its body is called in this thread."""
        errand = _Errand()
        in_thread = partial(errand.in_thread, body)
        return self._in_loop(errand, partial(self._inline.step, step, in_thread))

    async def export_bytes(self, item: Bytes, data: Any) -> str:  # noqa: ANN401 - bytes, in any way
        """Export bytes; what gives them piece by piece does so in this thread."""
        errand = _Errand()
        if isinstance(data, Iterable) and not isinstance(data, Piece | str):
            data = _pieces(errand, iter(data))
        exported: str = self._in_loop(errand, partial(self._inline.export_bytes, item, data))
        return exported

    def leave(self) -> None:
        """End the calls that the thread waits in, and refuse later ones. In the event loop."""
        self._is_left = True
        for errand in self._open:
            errand.scope.cancel()

    def _report(self, report: Report) -> None:
        self._refuse_if_left()
        self._inline.report(report)

    def _refuse_if_left(self) -> None:
        if self._is_left:
            raise RunCancelled(_LEFT)

    def _in_loop(self, errand: _Errand, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401
        """Make a call in the event loop; do here what it wants to be done in this thread."""
        context = copy_context()  # whose run it is, for what is logged on the way

        def begin() -> None:
            self._refuse_if_left()
            self._open.add(errand)
            trio.lowlevel.spawn_system_task(main, context=context)

        async def main() -> None:
            try:
                await errand.run(call)
            finally:
                self._open.discard(errand)

        trio.from_thread.run_sync(begin)
        return errand.wait()


async def _pieces(errand: _Errand, data: Iterator[Any]) -> AsyncIterator[Any]:
    while (piece := await errand.in_thread(lambda: next(data, _END))) is not _END:
        yield piece


async def call_in_thread(
    execution: Execution,
    handler: Callable[..., Any],
    inline: InlinePort,
    args: Mapping[str, Any],
) -> Any:  # noqa: ANN401 - what the entry returns
    """Call a plain function in a thread, which is left behind when the run does not wait for it."""
    port = ThreadPort(inline)
    context = SyncRunContext(SyncRun(port))
    try:
        return await execution.in_thread(lambda: handler(context, **args))
    finally:
        port.leave()
