"""One follow of one connection: it pulls while it is behind, and stands in a group while live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from runtime.channels import Delivery, Following
    from runtime.websocket.conversation import Conversation, EndReason
    from runtime.websocket.fanout import Fanout
    from runtime.websocket.formats import Format
    from runtime.websocket.wire import Wire

MOST: Final = 500  # events in a frame


class Follower:
    """A follow, from its beginning to its end."""

    following: Following

    def __init__(
        self,
        follow_id: str | int,
        format: Format,  # noqa: A002 - what else
        wire: Wire,
        credit: int | None,
    ) -> None:
        """Begin with a credit of so many events, or (None) without a bound."""
        self.format = format
        self._id = follow_id
        self._wire = wire
        self._credit = credit
        self.prefix = format.prefix(follow_id)
        self._scope = trio.CancelScope()
        self._reason: EndReason | None = None
        self._credited = trio.Event()
        self._left = trio.Event()  # the group
        self._ended_at: str | None = None

    # What others tell it

    def allow(self, credit: int) -> None:
        """Allow so many events more."""
        if self._credit is not None:
            self._credit += credit
            self._credited.set()

    def stop(self, reason: EndReason = "stopped") -> None:
        """End the follow."""
        self._reason = self._reason or reason
        self._scope.cancel()

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
        self._ended_at = cursor
        self._left.set()

    # What it does

    async def serve(self, following: Following, conversation: Conversation, fanout: Fanout) -> None:
        """Deliver until the end, and tell it."""
        self.following = following
        with self._scope:
            await self._deliver(conversation, fanout)
            self._reason = "terminal"
        cursor = self._ended_at or following.follow.cursor
        await self._send(conversation.end(self._id, self._reason or "stopped", cursor))

    async def _deliver(self, conversation: Conversation, fanout: Fanout) -> None:
        """Deliver all there is."""
        told_live = False
        while self._ended_at is None:
            while self._credit == 0:
                self._credited = trio.Event()
                await self._credited.wait()
            delivery = await self.following.next_delivery(self._most())
            if delivery.shown or not delivery.live:
                await self._send_batch(delivery)
            if delivery.end:
                self._ended_at = delivery.cursor
            elif delivery.live:
                if not told_live:
                    told_live = True
                    await self._send(conversation.live(self._id, delivery.cursor))
                await self._stand_in_group(fanout)

    async def _stand_in_group(self, fanout: Fanout) -> None:
        """Be served with all others, until something keeps us from it."""
        self._left = trio.Event()
        if not fanout.join(self):
            return
        try:
            await self._left.wait()
        finally:
            fanout.drop(self)

    def _most(self) -> int:
        return MOST if self._credit is None else min(MOST, self._credit)

    async def _send_batch(self, delivery: Delivery) -> None:
        if self._credit is not None:
            self._credit -= len(delivery.shown)
        await self._send(self.prefix + self.format.batch(delivery.shown, delivery.cursor))

    async def _send(self, message: bytes) -> None:
        with trio.CancelScope(shield=True):  # half a frame would be the end of the connection
            await self._wire.send_message(self.format.opcode, message)
