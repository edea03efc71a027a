"""A subscription on a connection: it pulls while it is behind, and is pushed to while it is live.

What it gets is the subscription's business. Here are what a connection adds to that: the id that
each message begins with, credit, sending, and how the end is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from perdure.runtime.kernel.socket_protocol import TERMINAL
from perdure.runtime.websocket.conversation import FOLLOW_ROOM

if TYPE_CHECKING:
    from perdure.runtime.kernel.budget import Hold
    from perdure.runtime.kernel.channels import Delivery, Subscription
    from perdure.runtime.kernel.channels.groups import Groups
    from perdure.runtime.websocket.conversation import Conversation, EndReason
    from perdure.runtime.websocket.formats import EventFrames, Format
    from perdure.runtime.websocket.wire import FrameWire


ROOM_AGAIN: Final = 0.25  # seconds between two looks whether there is room for a delivery


class SocketSubscription:
    """A follow that a client has asked for, from its beginning to its end."""

    _subscription: Subscription

    def __init__(
        self,
        follow_id: str | int,
        format: Format,  # noqa: A002 - what else
        wire: FrameWire,
        pulls: trio.CapacityLimiter,
        making: trio.CapacityLimiter,
        credit: int | None,
    ) -> None:
        """Begin with a credit of so many events, or (None) without a bound.

        ``pulls`` says how many follows of a connection may have a batch on its way, ``making`` how
        many are made at the same time for all connections.
        """
        self._id = follow_id
        self._format = format
        self._wire = wire
        self._pulls = pulls
        self._making = making
        self._credit = credit
        self._prefix = format.prefix(follow_id)
        self._waiting = trio.CancelScope()  # for events, credit or the group; never for a send
        self._reason: EndReason | None = None
        self._credited = trio.Event()
        self._told_live = False
        self.ended = trio.Event()  # and told so, or has nobody to tell

    # What others tell it

    def allow(self, credit: int) -> None:
        """Allow so many events more."""
        if self._credit is not None:
            self._credit += credit
            self._credited.set()

    def stop(self, reason: EndReason = "stopped") -> None:
        """End the follow. What it has pulled is sent before: its cursor covers that."""
        self._reason = self._reason or reason
        self._waiting.cancel()

    # What it does

    async def serve(
        self, subscription: Subscription, conversation: Conversation, groups: Groups
    ) -> None:
        """Deliver until the end, and tell it."""
        self._subscription = subscription
        while not subscription.ended and await self._may_pull():
            try:
                live = await self._deliver_next(conversation)
            finally:
                self._pulls.release()
            if live and not subscription.ended and self._reason is None:
                with trio.CancelScope() as self._waiting:
                    await groups.serve(subscription, self._format, self._take)
        reason = TERMINAL if subscription.ended or self._reason is None else self._reason
        await self._send(conversation.end(self._id, reason, subscription.cursor))

    async def _may_pull(self) -> bool:
        """Wait for credit, and for a place among the few whose batches are on their way."""
        if self._reason is not None:
            return False
        with trio.CancelScope() as self._waiting:
            while self._credit is not None and self._credit <= 0:
                self._credited = trio.Event()
                await self._credited.wait()
            await self._pulls.acquire()
            return True
        return False

    async def _deliver_next(self, conversation: Conversation) -> bool:
        """Pull and send; tell whether there is nothing more for now.

        What there is no room for ends the follow: its client comes back with its cursor.
        """
        with self._wire.account.hold() as held:
            pulled = await self._pull(held)
            if pulled is None:
                return False
            message, cursor, live, end = pulled
            if message is not None:
                await self._send(message)
        if live and not end and not self._told_live:
            self._told_live = True
            await self._send(conversation.live(self._id, cursor))
        return live

    async def _pull(self, held: Hold) -> tuple[bytes | None, str | None, bool, bool] | None:
        """Give the message of the next delivery, its cursor, whether it is live and the end."""
        delivery: Delivery | None = None
        with trio.CancelScope() as self._waiting:
            await self._find_room(held)
            async with self._making:
                delivery = await self._subscription.next_delivery(self._credit, wait=False)
        if delivery is None:
            return None
        events, cursor, live, end = delivery
        if live and not events:
            held.release()
            return None, cursor, live, end
        if self._credit is not None:
            self._credit -= len(events)
        message = self._prefix + self._format.batch(events, cursor)
        held.resize(len(message))
        return message, cursor, live, end

    async def _find_room(self, held: Hold) -> None:
        """Wait until the connection's account has room for a delivery, and hold it."""
        while self._wire.account.room < FOLLOW_ROOM:
            await self._wire.env.sleep(ROOM_AGAIN)
        held.resize(FOLLOW_ROOM)

    def _take(self, frames: EventFrames, count: int) -> bool:
        """Send a frame of so many events now, if there is credit and room for it."""
        if frames.prefix != self._prefix:
            frames.begin_with(self._prefix)
        if self._credit is None:
            return self._wire.send_now(frames.frame)
        if self._credit < count or not self._wire.send_now(frames.frame):
            return False
        self._credit -= count
        return True

    async def _send(self, message: bytes) -> None:
        await self._wire.send_message(self._format.opcode, message)
