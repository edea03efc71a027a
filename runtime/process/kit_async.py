"""The process side of an async entry: the calls of a plain one, awaited, on asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from runtime.contract import ONCE, Retry, RunContext
from runtime.process.kit import Channel, RunBase, SyncRun, error_of, rule, sound, value_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

Result = TypeVar("Result")


class AsyncRun(RunBase):
    """``ctx.run`` of an async function on asyncio."""

    def __init__(self, channel: Channel, about: Mapping[str, Any]) -> None:
        """Belong to one run and to the loop that executes it."""
        super().__init__(channel, about)
        self._loop = asyncio.get_running_loop()
        self._blocking = SyncRun(channel, about)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - one of the blocking calls, awaited
        """Give a call that waits in a thread, for everything that is awaited."""
        call = getattr(self._blocking, name)

        async def awaited(*args: Any, **more: Any) -> Any:  # noqa: ANN401 - what the call gives
            return await asyncio.to_thread(call, *args, **more)

        return awaited

    async def step(
        self, name: str, fn: Callable[..., Awaitable[Result]], *args: Any, retry: Retry = ONCE
    ) -> Result:
        """Do something once: its result is recorded and returned again after a crash."""
        answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        def heard(answer: dict[str, Any]) -> None:
            self._loop.call_soon_threadsafe(answers.put_nowait, answer)

        self._channel.request("step", heard, name=name, retry=rule(retry))
        while True:
            answer = await answers.get()
            if "call" not in answer:
                value: Result = value_of(answer)
                return value
            try:
                outcome: dict[str, Any] = {"value": await fn(*args)}
            except Exception as error:  # noqa: BLE001 - the server decides what becomes of it
                outcome = {"error": error_of(error)}
            self._channel.say("did", id=answer["call"], **sound(outcome))


def call(
    channel: Channel,
    handler: Callable[..., Awaitable[Any]],
    about: Mapping[str, Any],
    args: Mapping[str, Any],
) -> Any:  # noqa: ANN401 - what the entry returns
    """Execute an async entry to its end."""

    async def main() -> Any:  # noqa: ANN401 - what the entry returns
        return await handler(RunContext(AsyncRun(channel, about)), **args)  # type: ignore[arg-type]

    return asyncio.run(main())
