"""The sides of the port that have the log's operations in this process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from perdure.runtime.client.client import Delivery
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.kernel.socket_protocol import FOLLOW

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from perdure.runtime.kernel.channels import Subscription
    from perdure.runtime.kernel.data_directory import DataDir
    from perdure.runtime.kernel.features import Features
    from perdure.runtime.kernel.operations import Operations

LOOK: Final = 1.0  # seconds between two looks for the writer of a log
LOOKS: Final = 3  # without one, before a follow gives up: a server may be restarting


class LocalClient:
    """Asks operations in this process."""

    def __init__(self, operations: Operations) -> None:
        """Ask as the local user."""
        self._operations = operations

    async def call(self, operation: str, args: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Ask for an operation."""
        if operation == FOLLOW:
            raise OperationError("VALIDATION_ERROR", f"{FOLLOW} is no call: follow a channel")
        return await self._operations.call(LOCAL, operation, args)

    @asynccontextmanager
    async def follow(
        self, channel: str, *, after: str | None = None, limit: int | None = None, **filters: Any
    ) -> AsyncIterator[AsyncIterator[Delivery]]:
        """Follow a channel from a cursor on, for the length of a block."""
        request = {"channel": channel, "after": after, **filters}
        if limit is not None:
            request["limit"] = limit
        yield self._following(await self._operations.call(LOCAL, FOLLOW, request))

    async def settled(self) -> None:
        """Come back at once: this process executes nothing."""

    def _following(self, subscription: Subscription) -> LocalFollow:
        return LocalFollow(subscription)


class LocalFollow:
    """A follow of this process."""

    def __init__(self, subscription: Subscription) -> None:
        """Pull a subscription."""
        self._subscription = subscription
        self._live = False
        self._ended = False

    def __aiter__(self) -> Self:
        """Go through what is delivered."""
        return self

    async def __anext__(self) -> Delivery:
        """Wait for the next delivery."""
        if self._ended:
            raise StopAsyncIteration
        pulled = await self._subscription.next_delivery()
        self._live = self._live or pulled.live
        self._ended = pulled.end
        events = [event.as_event() for event in pulled.events]
        return Delivery(events, pulled.cursor, self._live, pulled.end)


class Beside(LocalClient):
    """The side of a process that only reads the log; operations that write need another."""

    def __init__(self, operations: Operations, features: Features, data: DataDir) -> None:
        """Ask the operations that read a data directory."""
        super().__init__(operations)
        self._features = features
        self._data = data

    async def call(self, operation: str, args: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Ask for an operation that reads."""
        if operation not in self._operations and operation in self._features.operations:
            message = f"{operation} needs a server, and this process only reads the log"
            raise OperationError("UNAVAILABLE", f"{message}; start one: perdure serve")
        return await super().call(operation, args)

    @property
    def at_work(self) -> bool:
        """Whether a process holds the log."""
        from perdure.eventlog.sqlite.lock import holder_of  # noqa: PLC0415 - commands start quickly

        return holder_of(self._data.log) is not None

    def _following(self, subscription: Subscription) -> LocalFollow:
        return _WatchedFollow(subscription, self)


class _WatchedFollow(LocalFollow):
    """A follow that gives up when the process that held the log is gone."""

    def __init__(self, subscription: Subscription, beside: Beside) -> None:
        super().__init__(subscription)
        self._beside = beside
        self._seen = beside.at_work

    async def __anext__(self) -> Delivery:
        """Wait for the next delivery; giving up a pull loses nothing."""
        import trio  # noqa: PLC0415 - who follows has an event loop

        missed = 0
        while missed < LOOKS:
            with trio.move_on_after(LOOK):
                return await super().__anext__()
            if self._beside.at_work:
                self._seen, missed = True, 0
            elif self._seen:
                missed += 1
        raise OperationError("UNAVAILABLE", "no process is at work on this log any more")
