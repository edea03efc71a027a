"""The port through which everything is asked: call an operation, follow a channel.

It has three sides. Embedded: this process holds the log. Beside: it reads a log that another
process holds, or that no process holds. Remote: a server is asked over its WebSocket. Answers,
events and errors are the same on all of them; every error is an OperationError.

    answer = await client.call("runs.get", {"run_id": run_id})
    async with client.follow("run", after=answer["cursor"], run_id=run_id) as follow:
        async for delivery in follow:
            print(delivery.events)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager


class Delivery(NamedTuple):
    """Some events of a channel in order, and the cursor that leads on from here.

    The cursor is None until the initial listing is complete. ``live`` says that the follow has
    caught up once, ``end`` that nothing will follow. Without events it is a heartbeat.
    ``restarted`` says that the connection was lost within the listing and that the listing begins
    again with this delivery: forget what was listed before.
    """

    events: Sequence[Any]
    cursor: str | None
    live: bool
    end: bool
    restarted: bool = False


class Caller(Protocol):
    """The part of the port that commands without an event loop use."""

    @property
    def at_work(self) -> bool:
        """Whether a process holds the log, as far as this side can tell."""

    async def call(self, operation: str, args: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Ask for an operation."""


class Client(Caller, Protocol):
    """The whole port."""

    def follow(
        self,
        channel: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        **filters: Any,
    ) -> AbstractAsyncContextManager[AsyncIterator[Delivery]]:
        """Follow a channel from a cursor on, for the length of a block.

        ``limit`` is how many events a delivery may have; those of one record stay together.
        """

    async def settled(self) -> None:
        """Wait until this process executes nothing any more; a server goes on by itself."""
