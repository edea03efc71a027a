"""The process side of an async entry: the calls of a plain one, awaited, on asyncio.

Whatever is awaited waits in the loop: any number of calls at once, and one that is given up leaves
nothing behind that the entry would have to wait for.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from perdure.runtime.execution.run_context import RunContext
from perdure.runtime.plugins.contract import ONCE, Retry
from perdure.runtime.process.chunks import awaited_pieces
from perdure.runtime.process.kit import RunBase, error_of, failure, rule, sayable, sound, value_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping

    from perdure.runtime.plugins.byte_source import Piece
    from perdure.runtime.process.pipes import Talk

Result = TypeVar("Result")


class AsyncRun(RunBase):
    """``ctx.run`` of an async function on asyncio."""

    def __init__(self, talk: Talk) -> None:
        """Belong to one run and to the loop that executes it."""
        super().__init__(talk)
        self._loop = asyncio.get_running_loop()

    def _request(self, say: str, **parts: Any) -> asyncio.Queue[dict[str, Any]]:
        """Say something whose answers are awaited in the loop."""
        answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._talk.request(say, partial(self._in_loop, answers.put_nowait), **parts)
        return answers

    def _in_loop(self, heard: Callable[[dict[str, Any]], None], answer: dict[str, Any]) -> None:
        """Bring an answer from the listening thread to the loop."""
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(heard, answer)

    async def _ask(self, say: str, **parts: Any) -> Any:  # noqa: ANN401 - what was asked for
        return value_of(await self._request(say, **parts).get())

    async def export_text(self, text: str, description: str | None = None, **more: Any) -> str:
        """Export a text; give the item's id."""
        return await self.export("text", text, description, **more)

    async def export_url(self, url: str, description: str | None = None, **more: Any) -> str:
        """Export an address; give the item's id."""
        return await self.export("url", url, description, **more)

    async def export_binary_url(self, url: str, description: str | None = None, **more: Any) -> str:
        """Export the address of bytes; give the item's id."""
        return await self.export("binary_url", url, description, **more)

    async def export_binary(
        self, data: bytes | str, description: str | None = None, **more: Any
    ) -> str:
        """Export a few bytes, or their base64; give the item's id."""
        return await self.export("binary", data, description, **more)

    async def export_json(self, value: Any, description: str | None = None, **more: Any) -> str:  # noqa: ANN401
        """Export a JSON value; give the item's id."""
        return await self.export("json", value, description, **more)

    async def export_id(self, ref: str, description: str | None = None, **more: Any) -> str:
        """Export a reference to an item that exists."""
        return await self.export("id", ref, description, **more)

    async def export(
        self,
        type: str,  # noqa: A002 - it is the item's type
        content: Any,  # noqa: ANN401 - as its type says
        description: str | None = None,
        **more: Any,
    ) -> str:
        """Export an item of any type, by name; a binary as base64, an ``id`` as a reference."""
        said = sayable(type, content)
        return str(
            await self._ask("export", type=type, content=said, description=description, **more)
        )

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
        failed: Exception | None = None
        while "call" in (answer := await answers.get()):
            try:
                outcome: dict[str, Any] = {"value": await fn(*args)}
            except Exception as error:  # noqa: BLE001 - the server decides what becomes of it
                outcome, failed = failure(error), error
            self._talk.say("did", id=answer["call"], **sound(outcome))
        value: Result = value_of(answer, failed)
        return value

    async def sleep(self, seconds: float, name: str | None = None) -> None:
        """Sleep, through crashes and restarts."""
        await self._ask("sleep", seconds=seconds, name=name)

    async def ask(self, question: Any, name: str | None = None) -> Any:  # noqa: ANN401
        """Ask people or programs outside, and wait for the answer."""
        return await self._ask("ask", question=question, name=name)

    async def start(
        self,
        plugin_id: str,
        entry_id: str,
        args: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> str:
        """Start another run; give its id."""
        parts = {"plugin_id": plugin_id, "entry_id": entry_id, "args": dict(args or {})}
        return str(await self._ask("start", name=name, **parts))


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
