"""Opening a node: what it has still to do, and that it may be told to stop before it is open.

What a node takes up may go on after it is open: a large log is served while its lists are built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Result = TypeVar("Result")


class StoppedOpening(Exception):
    """The node was told to stop while it opened; work that it had taken up was let go of."""


class Progress(TypedDict):
    """How far some work of a start-up has come."""

    what: str  # "runs taken up"
    done: int
    of: int


class StartUp:
    """The start-up of one node."""

    def __init__(self) -> None:
        """Nothing is to be done yet."""
        self.stopping = trio.Event()  # set when the node is to stop, maybe before it is open
        self._watched: dict[str, Callable[[], tuple[int, int]]] = {}

    def watch(self, what: str, look: Callable[[], tuple[int, int]]) -> None:
        """Show how far some work has come, until all is done: ``look`` tells how much of how much.

        More of the same name takes its place.
        """
        self._watched[what] = look

    @property
    def progress(self) -> list[Progress]:
        """The work that is not done."""
        left: list[Progress] = []
        for what, look in list(self._watched.items()):
            done, of = look()
            if done < of:
                left.append({"what": what, "done": done, "of": of})
            else:
                del self._watched[what]
        return left

    async def unless_stopped(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Do some work; if the node is to stop first, give it up and raise StoppedOpening."""
        results: list[Result] = []
        async with trio.open_nursery() as nursery:

            async def stop() -> None:
                await self.stopping.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(stop)
            results.append(await work())
            nursery.cancel_scope.cancel()
        if not results or self.stopping.is_set():
            raise StoppedOpening
        return results[0]


def progress_text(progress: Sequence[Progress]) -> str:
    """Say how far a start-up has come."""
    told = [f"{each['done']:,} of {each['of']:,} {each['what']}" for each in progress]
    return ", ".join(told) or "the log is being read"
