"""The process side of an async entry: the calls of a plain one, awaited, on asyncio."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

from runtime.plugins.contract import ONCE, Retry, RunContext
from runtime.process.kit import RunBase, SyncRun, error_of, failure, rule, sound, value_of
from runtime.process.pieces import awaited_pieces

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping

    from runtime.process.channel import Talk
    from runtime.process.pieces import Piece

Result = TypeVar("Result")


class AsyncRun(RunBase):
    """``ctx.run`` of an async function on asyncio."""

    def __init__(self, talk: Talk) -> None:
        """Belong to one run and to the loop that executes it."""
        super().__init__(talk)
        self._loop = asyncio.get_running_loop()
        self._blocking = SyncRun(talk)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - one of the blocking calls, awaited
        """Give a call that waits in a thread, for everything that is awaited."""
        call = getattr(self._blocking, name)

        @wraps(call)
        async def awaited(*args: Any, **more: Any) -> Any:  # noqa: ANN401 - what the call gives
            return await asyncio.to_thread(call, *args, **more)

        return awaited

    def _request(self, say: str, **parts: Any) -> asyncio.Queue[dict[str, Any]]:
        """Say something whose answers are awaited in the loop."""
        answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._talk.request(say, partial(self._in_loop, answers.put_nowait), **parts)
        return answers

    def _in_loop(self, heard: Callable[[dict[str, Any]], None], answer: dict[str, Any]) -> None:
        """Bring an answer from the listening thread to the loop."""
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(heard, answer)

    async def export_bytes(
        self,
        data: Piece | Iterable[Piece] | AsyncIterable[Piece],
        description: str | None = None,
        *,
        mime: str | None = None,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        """Export bytes of any size, whole or piece by piece; give the item's id.

        A few are in the item itself, more become a blob. When this returns, both are on disk.
        """
        more = {"mime": mime, "key": key, "metadata": metadata and dict(metadata)}
        answers = _Answers(self._talk)
        heard = partial(self._in_loop, answers.hear)
        self._talk.request("bytes", heard, description=description, **more)
        async with aclosing(awaited_pieces(data)) as cut:
            try:
                while "call" in (answer := await answers.get()):
                    answers.say(data=await anext(cut, b""))
            except BaseException as error:
                answers.give_up(error)
                raise
        return str(value_of(answer))

    async def step(
        self, name: str, fn: Callable[..., Awaitable[Result]], *args: Any, retry: Retry = ONCE
    ) -> Result:
        """Do something once: its result is recorded and returned again after a crash."""
        answers = self._request("step", name=name, retry=rule(retry))
        while "call" in (answer := await answers.get()):
            try:
                outcome: dict[str, Any] = {"value": await fn(*args)}
            except Exception as error:  # noqa: BLE001 - the server decides what becomes of it
                outcome = failure(error)
            self._talk.say("did", id=answer["call"], **sound(outcome))
        value: Result = value_of(answer)
        return value


class _Answers:
    """What is answered to an output of bytes, also after it was given up."""

    def __init__(self, talk: Talk) -> None:
        """Wait for the first."""
        self._talk = talk
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._called: int | None = None  # for a piece that was not said yet
        self._why: BaseException | None = None

    def hear(self, answer: dict[str, Any]) -> None:
        """Take an answer, in the loop."""
        self._called = answer.get("call")
        self._queue.put_nowait(answer)
        if self._why is not None:
            self.give_up(self._why)

    async def get(self) -> dict[str, Any]:
        """Wait for the next."""
        return await self._queue.get()

    def give_up(self, why: BaseException) -> None:
        """Say that no more pieces will come, now or when the next is called for."""
        self._why = why
        self.say(error=error_of(why))

    def say(self, **piece: Any) -> None:
        """Say a piece, if one was called for."""
        if self._called is not None:
            number, self._called = self._called, None
            self._talk.say("piece", id=number, **piece)


def call(handler: Callable[..., Awaitable[Any]], talk: Talk, args: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what the entry returns
    """Execute an async entry to its end."""

    async def main() -> Any:  # noqa: ANN401 - what the entry returns
        return await handler(RunContext(AsyncRun(talk)), **args)  # type: ignore[arg-type]

    return asyncio.run(main())
