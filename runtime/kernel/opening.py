"""Opening a node, which may be told to stop before it is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Result = TypeVar("Result")


class StoppedOpening(Exception):
    """The node was told to stop while it opened; work that it had taken up was let go of."""


async def unless_stopped(work: Callable[[], Awaitable[Result]], stopping: trio.Event) -> Result:
    """Do some work; if ``stopping`` is set first, give it up and raise StoppedOpening."""
    results: list[Result] = []
    async with trio.open_nursery() as nursery:

        async def stop() -> None:
            await stopping.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(stop)
        results.append(await work())
        nursery.cancel_scope.cancel()
    if not results or stopping.is_set():
        raise StoppedOpening
    return results[0]
