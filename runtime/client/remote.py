"""A server, asked from an event loop, over connections that are made again when they are lost.

Follows go on by their cursors. A call whose answer was lost is sent again if it only reads or has
an idempotency key; whether another one was done is not known, and its caller is told so. When no
connection can be made for some time, everything that is open ends with UNAVAILABLE.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import trio

from perdure.runtime.client.backoff import Backoff
from perdure.runtime.client.conversation import NotUnderstood
from perdure.runtime.client.remote_connection import BROKEN, SILENCE, RemoteConnection
from perdure.runtime.client.remote_follow import RemoteFollow
from perdure.runtime.client.unreachable import found, unreachable
from perdure.runtime.client.wire import ConnectionLost
from perdure.runtime.kernel.errors import OperationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping

    from perdure.eventlog.env import Env
    from perdure.runtime.client.address import Whereabouts
    from perdure.runtime.client.client import Delivery

    Tell = Callable[[str], None]

PATIENCE: Final = 10.0  # seconds after a loss in which a server has to be found and to be of use
_TROUBLE: Final = (*BROKEN, ConnectionLost, NotUnderstood)


class Remote:
    """A server and the current connection to it."""

    at_work: Final = True

    def __init__(
        self,
        env: Env,
        where: Whereabouts,
        connection: RemoteConnection,
        reading: Collection[str],
        patience: float,
        tell: Tell,
    ) -> None:
        """Begin with a connection; ``reading`` names the operations that change nothing."""
        self._env = env
        self._where = where
        self._reading = reading
        self._patience = patience
        self._tell = tell
        self._backoff = Backoff(env, patience)
        self._connection: RemoteConnection | None = connection
        self._connected = trio.Event()
        self._failure: OperationError | None = None
        self._follows: set[RemoteFollow] = set()

    async def run(self) -> None:
        """Keep a connection until cancelled, or until no server is found any more."""
        while (connection := self._connection) is not None:
            began = self._env.monotonic()
            try:
                await connection.run()
            except _TROUBLE:
                self._lose()
                held = self._patience <= self._env.monotonic() - began < SILENCE
                if connection.was_useful:
                    self._backoff.reset()
                elif held or not connection.was_asked:  # a long call was under way, or nothing
                    self._backoff.forgive()
                self._connection = await self._connect_again()
                self._connected.set()

    async def _connect_again(self) -> RemoteConnection | None:
        """Try until a connection is made. A handshake alone does not end the trouble."""
        self._backoff.begin()
        is_told = False
        while not self._backoff.is_over:
            await self._backoff.wait()
            try:
                connection = await RemoteConnection.open(found(self._where))
                await self._resume(connection)
            except _TROUBLE:
                pass
            except OperationError as error:
                if not error.kind.retriable:
                    self._give_up(error)
                    return None
            else:
                if is_told:
                    self._tell("Connected again.")
                return connection
            if not is_told:
                self._tell(f"Warning: {self._where.lost}; trying again for {self._patience:g} s.")
                is_told = True
        self._give_up(OperationError("UNAVAILABLE", self._where.lost))
        return None

    async def _resume(self, connection: RemoteConnection) -> None:
        """Go on with all follows on a new connection."""
        try:
            for follow in [each for each in self._follows if not each.is_over]:
                await connection.begin(follow)
                if follow not in self._follows:  # its user went meanwhile
                    await connection.stop(follow)
        except BaseException:
            await connection.close()
            raise

    def _lose(self) -> None:
        self._connection = None
        self._connected = trio.Event()
        for follow in self._follows:
            follow.lose()

    def _give_up(self, error: OperationError) -> None:
        self._failure = error
        for follow in self._follows:
            follow.fail(error)

    async def _current(self) -> RemoteConnection:
        while self._connection is None:
            if self._failure is not None:
                raise self._failure
            await self._connected.wait()
        return self._connection

    # What is asked

    async def call(self, operation: str, args: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Ask for an operation."""
        may_repeat = operation in self._reading or args.get("idempotency_key") is not None
        backoff = Backoff(self._env, self._patience)
        while True:
            connection = await self._current()
            asked_at = self._env.monotonic()
            try:
                return await connection.call(operation, args)
            except _TROUBLE as trouble:
                connection.cut()
                await connection.lost.wait()
                if not may_repeat:
                    raise _unknown(operation) from trouble
                if self._env.monotonic() - asked_at >= self._patience:
                    backoff.reset()  # it was under way for long: this is a loss of its own
                backoff.begin()
                if backoff.is_over:
                    raise unreachable(self._where, trouble) from trouble

    @asynccontextmanager
    async def follow(
        self, channel: str, *, after: str | None = None, limit: int | None = None, **filters: Any
    ) -> AsyncIterator[AsyncIterator[Delivery]]:
        """Follow a channel from a cursor on, for the length of a block."""
        backoff = Backoff(self._env, self._patience)
        follow = RemoteFollow({"channel": channel, **filters}, after, limit, backoff)
        connection = await self._current()
        self._follows.add(follow)
        try:
            try:
                await connection.begin(follow)
            except _TROUBLE:
                connection.cut()
            await follow.opened()
            yield follow
        finally:
            self._follows.discard(follow)
            if self._connection is not None:
                await self._connection.stop(follow)

    async def settled(self) -> None:
        """Come back at once: the server goes on by itself."""


def _unknown(operation: str) -> OperationError:
    return OperationError(
        "UNAVAILABLE",
        f"the connection was lost before {operation} was answered: whether it was done is not"
        " known; look, and ask again if it was not (with an idempotency key that is always safe)",
    )


@asynccontextmanager
async def open_remote(
    env: Env,
    where: Whereabouts,
    reading: Collection[str],
    *,
    patience: float = PATIENCE,
    tell: Tell = lambda _: None,
) -> AsyncIterator[Remote]:
    """Ask a server for the length of a block. One that is not there at first is UNAVAILABLE.

    People are told if it is lost later and not found again at once.
    """
    try:
        connection = await RemoteConnection.open(found(where))
    except _TROUBLE as error:
        raise unreachable(where, error) from error
    remote = Remote(env, where, connection, reading, patience, tell)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(remote.run)
        yield remote
        nursery.cancel_scope.cancel()
