"""One connection at work: it reads always, answers calls as they end, and serves follows."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import trio
from trio_websocket import ConnectionClosed

from perdure.runtime.kernel.decoding import off_the_loop
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.principal import Permission
from perdure.runtime.kernel.socket_protocol import FOLLOW
from perdure.runtime.websocket.conversation import (
    Call,
    Conversation,
    ConversationLimits,
    Follow,
    ImmediateReply,
    More,
    Stop,
)
from perdure.runtime.websocket.frames import PING, SILENT, close_frame, header
from perdure.runtime.websocket.socket_subscription import SocketSubscription

if TYPE_CHECKING:
    from perdure.runtime.kernel.channels.groups import Groups
    from perdure.runtime.kernel.operations import Operations
    from perdure.runtime.kernel.principal import Principal
    from perdure.runtime.websocket.formats import Format
    from perdure.runtime.websocket.wire import FrameWire

PING_AFTER: Final = 20.0  # seconds of silence
GONE_AFTER: Final = 60.0
FAREWELL: Final = 5.0  # seconds that parting may take
SERVICE_RESTART: Final = 1012
COME_BACK: Final = "come back with your cursors"
PULLS: Final = 4  # follows of a connection whose batches are on their way; others wait without one


class Messages(Protocol):
    """Where messages come from: the part of a WebSocket connection that is needed here."""

    async def get_message(self) -> str | bytes:
        """Wait for the next one, or raise ConnectionClosed."""

    async def aclose(self, code: int = 1000, reason: str | None = None) -> None:
        """Say good-bye, and wait for the peer to do the same."""


class Session:
    """A client, from its handshake until it goes."""

    def __init__(
        self,
        operations: Operations,
        groups: Groups,
        making: trio.CapacityLimiter,
        principal: Principal,
        messages: Messages,
        wire: FrameWire,
        format: Format,  # noqa: A002 - what else
        limits: ConversationLimits | None = None,
    ) -> None:
        """Nothing is read before ``run``."""
        self._env = wire.env
        self._operations = operations
        self._groups = groups
        self._making = making
        self._principal = principal
        self._messages = messages
        self._wire = wire
        self._format = format
        limits = limits or ConversationLimits()
        self._conversation = Conversation(format, wire.account, limits)
        self._reading = frozenset(
            row.name for row in operations if row.permission is Permission.READ and not row.waits
        )
        self._reads = trio.CapacityLimiter(limits.reads)  # their answers are large
        self._pulls = trio.CapacityLimiter(PULLS)
        self._draining = trio.Event()
        self._parted = trio.Event()

    @property
    def follows(self) -> int:
        """How many follows are open."""
        return len(self._conversation.subscriptions)

    async def run(self) -> None:
        """Serve the client until it goes, or is sent away."""
        async with trio.open_nursery() as nursery:
            self._wire.sends_without_waiting(nursery)
            nursery.start_soon(self._keep_alive, nursery.cancel_scope)
            nursery.start_soon(self._drain_when_asked)
            try:
                while True:
                    await self._receive(await self._messages.get_message(), nursery)
                    self._wire.message_taken()
            except ConnectionClosed:
                if self._draining.is_set():  # the good-bye is ours: the peer has yet to hear it
                    await self._parted.wait()
            finally:
                self._wire.sends_without_waiting(None)
            nursery.cancel_scope.cancel()

    def drain(self) -> None:
        """Tell all followers where they are, and part."""
        self._draining.set()

    # Reading

    async def _receive(self, message: str | bytes, nursery: trio.Nursery) -> None:
        """Begin what a message asks for. No handler is waited for: reading never stops."""
        read = partial(self._conversation.read, message)
        asked = self._conversation.receive(await off_the_loop(self._env, read, len(message)))
        subscriptions = self._conversation.subscriptions
        match asked:
            case Call():
                nursery.start_soon(self._call, asked)
            case Follow():
                subscription = SocketSubscription(
                    asked.id, self._format, self._wire, self._pulls, self._making, asked.credit
                )
                subscriptions[asked.id] = subscription
                nursery.start_soon(self._follow, asked, subscription)
            case More():
                subscriptions[asked.id].allow(asked.credit)
            case Stop():
                subscriptions[asked.id].stop()
            case ImmediateReply():
                await self._send(asked.message)  # a peer that only complains has to listen
            case None:
                pass

    async def _call(self, call: Call) -> None:
        with self._conversation.answering(call.id) as held:
            async with self._reads if call.call in self._reading else nullcontext():
                message = await self._answer(call)
                try:
                    held.grow(len(message))
                except OperationError as error:
                    if call.call in self._reading:  # what was written has to be told
                        message = self._conversation.refusal(call.id, error)
                await self._send(message)

    async def _answer(self, call: Call) -> bytes:
        try:
            if call.call == FOLLOW:
                raise _no_call()
            answer = await self._operations.call(self._principal, call.call, call.args)
            return self._conversation.answer(call.id, answer)
        except OperationError as error:
            return self._conversation.refusal(call.id, error)

    async def _follow(self, asked: Follow, subscription: SocketSubscription) -> None:
        with self._conversation.take_hold(asked.id):
            try:
                refusal = await self._served(asked, subscription)
                if refusal is not None:
                    await self._send(refusal)
            except trio.BrokenResourceError:
                pass  # the peer is gone; the reader finds out too
            finally:
                subscriptions = self._conversation.subscriptions
                if subscriptions.get(asked.id) is subscription:  # and not one that took the id over
                    del subscriptions[asked.id]
                subscription.ended.set()

    async def _served(self, asked: Follow, subscription: SocketSubscription) -> bytes | None:
        """Serve a follow to its end, or give what to say if it is refused.

        It is not said here: until then, the error would keep all that was to be sent.
        """
        args = asked.follow if asked.after is None else {**asked.follow, "after": asked.after}
        try:
            await subscription.serve(
                await self._operations.call(self._principal, FOLLOW, args),
                self._conversation,
                self._groups,
            )
        except OperationError as error:
            return self._conversation.refusal(asked.id, error)
        return None

    # Writing

    async def _send(self, message: bytes) -> None:
        await self._wire.send_message(self._format.opcode, message)

    async def _drain_when_asked(self) -> None:
        await self._draining.wait()
        self._wire.last_word = close_frame(SERVICE_RESTART, COME_BACK)
        with trio.move_on_after(FAREWELL):
            while subscriptions := list(self._conversation.subscriptions.values()):
                for subscription in subscriptions:
                    subscription.stop("draining")
                for subscription in subscriptions:
                    await subscription.ended.wait()
            await self._messages.aclose(SERVICE_RESTART, COME_BACK)
        self._parted.set()

    async def _keep_alive(self, scope: trio.CancelScope) -> None:
        """Ask a silent peer whether it is there; end the connection of one that is not.

        While something is on its way the peer is there: it takes that, or is cut off.
        """
        while True:
            if self._wire.is_sending:
                self._wire.heard_at = self._env.monotonic()
            silence = self._env.monotonic() - self._wire.heard_at
            if silence >= GONE_AFTER:
                await self._wire.say_last(
                    close_frame(SILENT, f"you were silent for {GONE_AFTER:g} s; connect again")
                )
                scope.cancel()
            if silence >= PING_AFTER:
                await self._wire.send_all(header(PING, 0))
            await self._env.sleep(max(PING_AFTER - silence, PING_AFTER / 2))


def _no_call() -> OperationError:
    return OperationError("VALIDATION_ERROR", f"{FOLLOW} is no call: send {{id, follow: ...}}")
