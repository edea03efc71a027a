"""A conversation: what a process says about its run becomes what an inline entry would do.

Steps, retries, exports, sleeps, questions and children are those of ``ctx.run``; the process is
only told when to do what. It may speak of no run but its own, it is read no faster than it can be
dealt with, and a line that is no message ends its run. What an entry says wrongly is refused as the
same call of an inline entry is: a request is answered, a report ends the run.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import outcome
import trio

from perdure.runtime.execution.outcome import error_of
from perdure.runtime.kernel.decoding import off_the_loop
from perdure.runtime.plugins.contract import FailedStep, PluginError, RunCancelled, StepError
from perdure.runtime.plugins.run_messages import Bytes, Request, Step
from perdure.runtime.plugins.step_body import LastTry
from perdure.runtime.process import messages as m
from perdure.runtime.process.message_parser import parse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from perdure.eventlog.env import Env
    from perdure.runtime.execution.inline_port import InlinePort
    from perdure.runtime.plugins.run_messages import Call, FromEntry
    from perdure.runtime.process.message_parser import Wrong, WrongRequest
    from perdure.runtime.process.worker import Worker

BURST: Final = 1000  # messages that are dealt with at once; more have to wait a little
PAUSE: Final = 0.05
MAX_REQUESTS: Final = 64  # that one process may have open at once
MAX_DRAFTS: Final = 4  # outputs of bytes of one process that are written at once; each has a file
PROTOCOL_ERROR: Final = "PLUGIN_PROTOCOL_ERROR"
Called = TypeVar("Called", m.Did, m.Piece)


class NeverBegun(PluginError):
    """The process has ended without a word about the run: its entry was not called there."""


class Dialogue:
    """The talk with a worker about one run."""

    def __init__(
        self,
        env: Env,
        worker: Worker,
        port: InlinePort,
        until_cancelled: Callable[[], Awaitable[str | None]],
    ) -> None:
        """Nothing is said before ``hold``."""
        self._env = env
        self._worker = worker
        self._port = port
        self._until_cancelled = until_cancelled
        self._open: set[int] = set()
        self._calls: dict[tuple[int, type], trio.MemorySendChannel[Any]] = {}
        self._drafts = trio.Semaphore(MAX_DRAFTS)
        self._cancel_told = trio.Event()
        self._has_begun = False  # the process has said anything about the run
        self.is_over = False  # the process itself has said how its entry ended

    async def hold(self, entry_id: str, args: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Have the entry executed; give what it returns, or raise what it raises."""
        start = {
            "do": "start",
            "protocol": m.VERSION,
            "entry_id": entry_id,
            "args": args,
            "run": self._port.about,
        }
        await self._worker.send(start)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tell_of_cancel)
            heard = await outcome.acapture(self._listen, nursery)
            nursery.cancel_scope.cancel()
        return heard.unwrap()

    async def _tell_of_cancel(self) -> None:
        reason = await self._until_cancelled()
        await self._worker.send({"do": "cancel", "run_id": self._port.about.id, "reason": reason})
        self._cancel_told.set()

    async def _listen(self, nursery: trio.Nursery) -> Any:  # noqa: ANN401 - what the entry returns
        heard = 0
        while (message := await self._next()) is not None:
            heard += 1
            if heard % BURST == 0:
                await trio.sleep(PAUSE)
            self.is_over = isinstance(message, m.Return | m.Raise)
            if isinstance(message, m.Return):
                return message.value
            if isinstance(message, m.Raise):
                raise _raised(message)
            self._hear(message, nursery)
        status = await self._worker.wait()
        await self._worker.drained()
        raise _crashed(status, PluginError if self._has_begun else NeverBegun)

    async def _next(self) -> m.FromProcess | Wrong | None:
        """Wait for the next message; None when the process says no more."""
        try:
            line = await self._worker.receive()
            if line is None:
                return None
            self._has_begun = True
            message = await off_the_loop(self._env, partial(parse, line), len(line))
        except m.Malformed as error:
            raise PluginError(PROTOCOL_ERROR, str(error)) from error
        if message.run_id not in {None, self._port.about.id}:
            raise PluginError(PROTOCOL_ERROR, f"it spoke of another run, {message.run_id!r}")
        return message

    def _hear(self, message: m.Begun | m.Called | FromEntry | Wrong, nursery: trio.Nursery) -> None:
        """Deal with a message: reports at once, requests in a task of their own."""
        match message:
            case m.Begun():
                pass
            case m.Did() | m.Piece():
                self._take(message)
            case Request():
                self._open_request(message.number)
                nursery.start_soon(self._answer, message.number, message)
            case _:
                self._port.report(message.checked())

    def _open_request(self, number: int) -> None:
        if number in self._open:
            raise PluginError(PROTOCOL_ERROR, f"request {number} is open already")
        if len(self._open) >= MAX_REQUESTS:
            raise PluginError(PROTOCOL_ERROR, f"more than {MAX_REQUESTS} requests are open")
        self._open.add(number)

    def _take(self, said: m.Called) -> None:
        """Take what was called for, and nothing else."""
        waiting = self._calls.pop((said.id, type(said)), None)
        if waiting is None:
            what = type(said).__name__.lower()
            raise PluginError(PROTOCOL_ERROR, f"request {said.id} was not called for a {what}")
        waiting.send_nowait(said)

    async def _answer(self, number: int, request: Bytes | Step | Call | WrongRequest) -> None:
        """Do what a request asks for and say what came of it."""
        try:
            value = await self._done(number, request.checked())
        except (PluginError, StepError, RunCancelled) as error:
            if isinstance(error, RunCancelled) and self._port.cancelled:
                await self._cancel_told.wait()  # a wait ends after the process knows why
            told = error_of(error)
            answer: dict[str, Any] = {
                "re": number,
                "error": m.Error(
                    code=told.code,
                    message=told.message,
                    details=told.details,
                    retriable=told.retriable,
                ),
                "cancelled": isinstance(error, RunCancelled),
                "step": _step_error(error),
            }
        else:
            answer = {"re": number, "value": value}
        self._open.discard(number)
        await self._worker.send(answer)

    async def _done(self, number: int, request: Bytes | Step | Call) -> Any:  # noqa: ANN401 - the answer
        """Do what a request asks for."""
        match request:
            case Step():
                return await self._port.step(request, partial(self._step, number))
            case Bytes():
                async with self._drafts:  # few outputs at once, so that few files are open
                    return await self._port.export_bytes(request, self._pieces(number))
            case _:
                return await self._port.call(request)

    async def _step(self, number: int) -> Any:  # noqa: ANN401 - what the step returns
        """Have the process do a step."""
        did = await self._call(number, m.Did)
        if did.cancelled:
            raise RunCancelled(did.error and did.error.message)
        if did.last and did.error is not None:
            raise LastTry(_plugin_error(did.error))
        return _sound(did).value

    async def _pieces(self, number: int) -> AsyncGenerator[bytes, None]:
        """Call for one piece after the other: the next when the last one was dealt with."""
        while data := _sound(await self._call(number, m.Piece)).data:
            yield data

    async def _call(self, number: int, wanted: type[Called]) -> Called:
        """Call for what belongs to a request."""
        send, receive = trio.open_memory_channel[Called](1)  # one call, one thing that is said
        self._calls[number, wanted] = send
        await self._worker.send({"call": number})
        return await receive.receive()


def _step_error(error: Exception) -> str | None:
    """Tell whether a step has failed for good, or was used in a way that cannot be recorded."""
    if isinstance(error, StepError):
        return "misused"
    return "failed" if isinstance(error, FailedStep) else None


def _sound(said: Called) -> Called:
    if said.error is not None:
        raise _plugin_error(said.error)
    return said


def _raised(message: m.Raise) -> Exception:
    if message.cancelled:
        return RunCancelled(message.error.message)
    return _plugin_error(message.error)


def _plugin_error(error: m.Error) -> PluginError:
    return PluginError(error.code, error.message, details=error.details, retriable=error.retriable)


def _crashed(status: int, kind: type[PluginError]) -> PluginError:
    how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
    return kind(
        "PLUGIN_CRASHED",
        f"the process of the entry {how} before the entry was done",
        details={"status": status},
        retriable=True,
    )
