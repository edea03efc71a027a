"""One follow of one connection: it pulls while it is behind, and stands in a group while live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from perdure.runtime.kernel.channels.service import EVENTS_IN_FRAME

if TYPE_CHECKING:
    from perdure.runtime.kernel.channels import Delivery, Subscription
    from perdure.runtime.websocket.conversation import Conversation, EndReason
    from perdure.runtime.websocket.fanout import Fanout
    from perdure.runtime.websocket.formats import Format
    from perdure.runtime.websocket.wire import FrameWire


class Follower:
    """A follow, from its beginning to its end."""

    subscription: Subscription

    def __init__(
        self,
        follow_id: str | int,
        format: Format,  # noqa: A002 - what else
        wire: FrameWire,
        pulls: trio.CapacityLimiter,
        credit: int | None,
    ) -> None:
        """Begin with a credit of so many events, or (None) without a bound.

        ``pulls`` says how many follows of a connection may have a batch on its way.
        """
        self.format = format
        self._id = follow_id
        self._wire = wire
        self._pulls = pulls
        self._credit = credit
        self.prefix = format.prefix(follow_id)
        self._waiting = trio.CancelScope()  # for events, credit or the group; never for a send
        self._reason: EndReason | None = None
        self._credited = trio.Event()
        self._left = trio.Event()  # the group
        self.ended = trio.Event()  # and told so, or has nobody to tell
        self._told_live = False
        self._ended_at: str | None = None

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

    def take(self, frame: bytes, count: int) -> bool:
        """Send a frame of so many events now, if there is credit and room for it."""
        if self._credit is None:
            return self._wire.send_now(frame)
        if self._credit < count or not self._wire.send_now(frame):
            return False
        self._credit -= count
        return True

    def leave(self, cursor: str | None) -> None:
        """Hear that it is no longer in the group; with a cursor, because all has ended there."""
        if cursor is not None:
            self._ended_at, self._reason = cursor, None
        self._left.set()

    # What it does

    async def serve(
        self, subscription: Subscription, conversation: Conversation, fanout: Fanout
    ) -> None:
        """Deliver until the end, and tell it."""
        self.subscription = subscription
        await self._deliver(conversation, fanout)
        reason = "terminal" if self._reason is None else self._reason
        cursor = self._ended_at or subscription.cursor
        await self._send(conversation.end(self._id, reason, cursor))

    async def _deliver(self, conversation: Conversation, fanout: Fanout) -> None:
        """Deliver all there is, or until it is to stop."""
        while self._ended_at is None and await self._may_pull():
            try:
                live = await self._deliver_next(conversation)
            finally:
                self._pulls.release()
            if live:
                await self._stand_in_group(fanout)

    async def _deliver_next(self, conversation: Conversation) -> bool:
        """Pull and send; tell whether there is nothing more for now."""
        delivery = await self._pull()
        if delivery is None:
            return False
        if delivery.events or not delivery.live:
            await self._send_batch(delivery)
        if delivery.end:
            self._ended_at, self._reason = delivery.cursor, None
        elif delivery.live and not self._told_live:
            self._told_live = True
            await self._send(conversation.live(self._id, delivery.cursor))
        return delivery.live

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

    async def _pull(self) -> Delivery | None:
        """Give what comes next, or the live edge; None if it is to stop."""
        with trio.CancelScope() as self._waiting:
            return await self.subscription.next_delivery(self._most(), wait=False)
        return None

    async def _stand_in_group(self, fanout: Fanout) -> None:
        """Be served with all others, until something keeps us from it."""
        self._left = trio.Event()
        if self._reason is not None or self._ended_at is not None or not fanout.join(self):
            return
        with trio.CancelScope() as self._waiting:
            try:
                await self._left.wait()
            finally:
                fanout.drop(self)

    def _most(self) -> int:
        return EVENTS_IN_FRAME if self._credit is None else min(EVENTS_IN_FRAME, self._credit)

    async def _send_batch(self, delivery: Delivery) -> None:
        if self._credit is not None:
            self._credit -= len(delivery.events)
        await self._send(self.prefix + self.format.batch(delivery.events, delivery.cursor))

    async def _send(self, message: bytes) -> None:
        await self._wire.send_message(self.format.opcode, message)
