"""One connection to a server at work: a stream, the wire above it, and who waits for what."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import trio

from perdure.runtime.client.conversation import (
    Answered,
    Conversation,
    Ended,
    NotUnderstood,
    Refused,
)
from perdure.runtime.client.wire import CONNECTING, PIECE, ConnectionLost, Wire
from perdure.runtime.kernel.socket_protocol import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.runtime.client.address import Address
    from perdure.runtime.client.conversation import Told
    from perdure.runtime.client.remote_follow import RemoteFollow
    from perdure.runtime.kernel.errors import OperationError

SILENCE: Final = 45.0  # seconds without a byte; a server pings a silent client after 20
SENDING: Final = 10.0  # seconds that a message may take to leave
LEAVING: Final = 1.0  # seconds to say that a follow is stopped
BROKEN: Final = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)


class RemoteConnection:
    """A connection, from its handshake until it is lost. It is not made again."""

    _nursery: trio.Nursery  # while it runs

    def __init__(self, address: Address, stream: trio.abc.Stream) -> None:
        """Use ``open`` instead."""
        self.lost = trio.Event()
        self._stream = stream
        self._wire = Wire(address)
        self._conversation = Conversation()
        self._calls: dict[int, _Call] = {}
        self._follows: dict[int, RemoteFollow] = {}
        self._turn = trio.Lock()  # whoever has it is sending
        self._cut = trio.CancelScope()
        self._granted: dict[int, int] = {}  # credit that is to be sent, by follow
        self._has_granted = trio.Event()
        self.was_asked = False  # for anything
        self.was_useful = False  # the server has said something other than that it cannot serve

    @classmethod
    async def open(cls, address: Address) -> Self:
        """Connect, and shake hands."""
        with trio.move_on_after(CONNECTING):
            bare = await trio.open_tcp_stream(address.host, address.port)
            stream: trio.abc.Stream = bare
            try:
                tls = address.tls()
                if tls is not None:
                    stream = trio.SSLStream(bare, tls, server_hostname=address.host)
                connection = cls(address, stream)
                await connection._shake_hands()
            except BaseException:
                await trio.aclose_forcefully(stream)
                raise
            return connection
        raise ConnectionLost(f"it was silent for {CONNECTING:g} seconds")

    async def _shake_hands(self) -> None:
        await self._stream.send_all(self._wire.hello())
        while not self._wire.is_open:
            await self._receive()

    async def run(self) -> None:
        """Read until the connection is lost, which always raises."""
        lost: Exception = ConnectionLost("the connection was cut")
        try:
            with self._cut:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    nursery.start_soon(self._send_grants)
                    try:
                        await self._read()
                    except (*BROKEN, ConnectionLost, NotUnderstood) as error:
                        lost = error
                    nursery.cancel_scope.cancel()
            raise lost
        finally:
            await self.close()

    async def _read(self) -> None:
        while True:
            with trio.move_on_after(SILENCE):
                await self._receive()
                continue
            raise ConnectionLost("the server is silent")

    async def close(self) -> None:
        """Close the stream, and tell whoever waits."""
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(self._stream)
        self.lost.set()  # nothing else runs until the next connection is being made
        for call in self._calls.values():
            call.done.set()

    def cut(self) -> None:
        """Let go of the connection: something on it went wrong."""
        self._cut.cancel()

    # Receiving

    async def _receive(self) -> None:
        received = self._wire.receive(await self._stream.receive_some(PIECE))
        self.was_useful = self.was_useful or received.is_alive
        for message in received.messages:
            told = self._conversation.receive(message)
            if told is not None:
                self._tell(told)
        if received.reply:
            await self._send(received.reply)
        if received.lost is not None:
            raise received.lost

    def _tell(self, told: Told) -> None:
        cannot_serve = isinstance(told, Refused) and told.error.kind.retriable
        is_farewell = isinstance(told, Ended) and told.reason != TERMINAL
        self.was_useful = self.was_useful or not (cannot_serve or is_farewell)
        if told.id in self._calls:
            call = self._calls[told.id]
            call.told = told
            call.done.set()
            return
        if isinstance(told, Refused) and cannot_serve:
            follow = self._follows[told.id]
            self._nursery.start_soon(self._begin_again, told.id, follow, told.error)
        else:
            self._follows[told.id].take(told)

    async def _begin_again(
        self, follow_id: int, follow: RemoteFollow, error: OperationError
    ) -> None:
        """Ask again for a follow that was refused for now; the others go on meanwhile."""
        if await follow.postpone(error) and self._follows.pop(follow_id, None) is not None:
            try:
                await self.begin(follow)
            except ConnectionLost:
                self.cut()

    # Sending

    async def call(self, operation: str, args: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Ask for an operation, or raise ConnectionLost."""
        self.was_asked = True
        call_id, message = self._conversation.call(operation, args)
        call = self._calls[call_id] = _Call()
        try:
            await self._say(message)
            await call.done.wait()
        finally:
            del self._calls[call_id]
            self._conversation.forget(call_id)
        if isinstance(call.told, Answered):
            return call.told.answer
        if isinstance(call.told, Refused):
            raise call.told.error
        raise ConnectionLost("the connection was lost before the answer")

    async def begin(self, follow: RemoteFollow) -> None:
        """Follow something on this connection, from where it has come to."""
        self.was_asked = True
        follow_id, message = self._conversation.follow(
            follow.request, follow.cursor, follow.begin()
        )
        self._follows[follow_id] = follow
        follow.grant = partial(self._grant, follow_id)
        await self._say(message)

    async def stop(self, follow: RemoteFollow) -> None:
        """Tell the server that a follow has ended here."""
        for follow_id, each in list(self._follows.items()):
            if each is follow:
                del self._follows[follow_id]
                with trio.move_on_after(LEAVING, shield=True):
                    await self._say_or_cut(self._conversation.stop(follow_id))

    def _grant(self, follow_id: int, credit: int) -> None:
        self._granted[follow_id] = self._granted.get(follow_id, 0) + credit
        self._has_granted.set()

    async def _send_grants(self) -> None:
        """Send credit for those who may not wait for it."""
        while True:
            await self._has_granted.wait()
            self._has_granted = trio.Event()
            granted, self._granted = self._granted, {}
            for follow_id, credit in granted.items():
                if follow_id in self._follows:
                    await self._say_or_cut(self._conversation.credit(follow_id, credit))

    async def _say_or_cut(self, message: bytes) -> None:
        try:
            await self._say(message)
        except ConnectionLost:
            self.cut()

    async def _say(self, message: bytes) -> None:
        await self._send(self._wire.message(message))

    async def _send(self, data: bytes) -> None:
        """Send all of it, also when the sender is cancelled: half a frame would spoil the rest.

        Raise ConnectionLost if it cannot be sent.
        """
        async with self._turn:
            if self.lost.is_set():
                raise ConnectionLost("the connection is lost")
            try:
                with trio.move_on_after(SENDING, shield=True) as sending:
                    await self._stream.send_all(data)
            except BROKEN as error:
                raise ConnectionLost("the connection is lost") from error
            if sending.cancelled_caught:
                self.cut()
                raise ConnectionLost("the server takes nothing of what it is sent")


class _Call:
    """A call that waits for its answer."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.told: Told | None = None
