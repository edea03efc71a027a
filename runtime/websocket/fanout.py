"""Sends each new batch to all live followers, encoded once for each group of them.

Followers that are live and want the same in the same format are a group: they are all at the place
up to which the fanout has come. A committed batch is shown and encoded once for a group and written
to each socket without waiting, so that a thousand followers cost one task. Whoever cannot take it
at once, for want of credit or room in the socket, leaves the group at the place where it was, goes
on from there by its own pulling, and comes back when it is live again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

import trio

from perdure.eventlog.follow import HEARTBEAT
from perdure.runtime.kernel.channels.channel import thinned
from perdure.runtime.kernel.channels.service import BATCH_BYTES, EVENTS_IN_FRAME
from perdure.runtime.websocket.frames import framed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perdure.eventlog.filter import Filter
    from perdure.eventlog.log import EventLog
    from perdure.eventlog.record import Mark, Record
    from perdure.runtime.kernel.channels import Subscription
    from perdure.runtime.kernel.channels.channel import Channel
    from perdure.runtime.kernel.channels.event import ChannelEvent
    from perdure.runtime.websocket.formats import Format

_log = logging.getLogger("perdure.followers")
STEP: Final = 256  # records at a time: few are encoded before the first is sent
BREATH: Final = 64  # frames that are written, or groups passed by, before others do something


class Member(Protocol):
    """A follower that is live."""

    subscription: Subscription
    format: Format
    prefix: bytes  # of its event frames

    def take(self, frame: bytes, count: int) -> bool:
        """Send a frame of so many events now; False if that cannot be done."""

    def leave(self, cursor: str | None) -> None:
        """Hear that it is no longer in the group; with a cursor, because all has ended there."""


class _Group:
    """Followers that want the same."""

    def __init__(self, first: Member, now: float) -> None:
        self.channel = first.subscription.channel
        self.where = first.subscription.where
        self.only = _only(first.subscription.where)
        self.ends_with = first.subscription.ends_with
        self.format = first.format
        self.members: dict[Member, Mark] = {}  # and the place at which each came, or was served
        self.told_position = first.subscription.follow.mark.position
        self.told_at = now


class _News:
    """Records that have just been committed. Each is shown and encoded once, for all groups."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.upto = records[-1].mark
        self._shown: dict[tuple[str, int], Sequence[ChannelEvent]] = {}

    def for_group(self, group: _Group) -> list[ChannelEvent] | None:
        """Give what a group wants of them; None if that is too much for a frame."""
        events: list[ChannelEvent] = []
        for record in self.records:
            if group.where.matches(record):
                events.extend(self._show(group.channel, record))
                if len(events) > EVENTS_IN_FRAME:
                    return None
        return thinned(events)

    def names(self) -> Iterable[str]:
        """Name the streams that they belong to, and the scopes, each once."""
        names: dict[str, None] = {}
        for record in self.records:
            names[record.stream] = names[_of_scope(record.scope)] = None
        return names

    def ends(self, stream: str) -> bool:
        """Tell whether a stream has come to its end."""
        return any(record.seal and record.stream == stream for record in self.records)

    def _show(self, channel: Channel, record: Record) -> Sequence[ChannelEvent]:
        key = (channel.name, record.position)
        if key not in self._shown:
            self._shown[key] = channel.show(record)
        return self._shown[key]


class Fanout:
    """The one task that serves all live followers of a log."""

    def __init__(self, log: EventLog, *, heartbeat: float = HEARTBEAT) -> None:
        """Begin at the head of the log, with nobody to serve."""
        self._log = log
        self._heartbeat = heartbeat
        self._beats_at = log.env.monotonic() + heartbeat
        self._mark = log.tail.head  # where all members are
        self._groups: dict[object, _Group] = {}
        self._by_name: dict[str, list[_Group]] = {}  # those that follow one stream, or one scope
        self._general: list[_Group] = []

    @property
    def followers(self) -> int:
        """How many are live."""
        return sum(len(group.members) for group in self._groups.values())

    def join(self, member: Member) -> bool:
        """Take in a follower that is live; False if something has come in the meantime."""
        place = member.subscription.follow.mark
        if place != self._log.tail.head:
            return False
        key = (member.subscription.key, member.format.name)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(member, self._log.env.monotonic())
            self._list_with(group).append(group)
        group.members[member] = place
        return True

    def drop(self, member: Member) -> None:
        """Let go of a follower, if it is here: it has seen all up to where it is told to go on."""
        key = (member.subscription.key, member.format.name)
        group = self._groups.get(key)
        if group is None or member not in group.members:
            return
        member.subscription.follow.move_to(max(group.members.pop(member), self._mark))
        if group.members:
            return
        del self._groups[key]
        self._list_with(group).remove(group)
        if group.only is not None and not self._by_name[group.only]:
            del self._by_name[group.only]

    def _list_with(self, group: _Group) -> list[_Group]:
        if group.only is None:
            return self._general
        return self._by_name.setdefault(group.only, [])

    async def run(self) -> None:
        """Serve until the log closes."""
        tail = self._log.tail
        while True:
            signal = tail.signal  # taken before looking, so no wake-up is lost
            self._log.raise_if_closed()
            records = tail.after(self._mark.position, STEP)
            if records is None:
                self._send_everybody_away()
                self._mark = tail.head
            elif records:
                news = _News(_few(records))
                await self._deliver(news)
                self._mark = news.upto
                await trio.lowlevel.checkpoint()
            else:
                with trio.move_on_at(self._beats_at):
                    await tail.wait(signal)
            if self._log.env.monotonic() >= self._beats_at:
                await self._beat()

    async def _deliver(self, news: _News) -> None:
        """Give each group what it wants."""
        groups = list(self._general)
        if self._by_name:
            groups += [group for name in news.names() for group in self._by_name.get(name, ())]
        for number, group in enumerate(groups, 1):
            if not number % BREATH:
                await trio.lowlevel.checkpoint()
            events = self._events_for(group, news)
            if events is None:
                self._send_group_away(group)
                continue
            ends = group.ends_with is not None and news.ends(group.ends_with)
            if events or ends:
                await self._send(group, events, news.upto, ends=ends)

    def _events_for(self, group: _Group, news: _News) -> list[ChannelEvent] | None:
        """Give what a group wants; None if its members have to pull it, one frame at a time.

        A channel that cannot show a record hurts its own followers alone: each is told so.
        """
        try:
            return news.for_group(group)
        except Exception:  # noqa: BLE001 - the edge of a channel: other followers go on
            _log.exception("the channel %s cannot show a record", group.channel.name)
            return None

    async def _beat(self) -> None:
        """Tell those who have heard nothing for long where the log is now."""
        now = self._log.env.monotonic()
        self._beats_at = now + self._heartbeat
        for group in list(self._groups.values()):
            silent = now - group.told_at >= self._heartbeat
            if silent and group.told_position < self._mark.position:
                await self._send(group, [], self._mark, ends=False)

    async def _send(
        self, group: _Group, events: Sequence[ChannelEvent], upto: Mark, *, ends: bool
    ) -> None:
        """Send a batch to a whole group."""
        cursor = self._log.cursor(upto)
        batch, count = group.format.batch(events, cursor), len(events)
        group.told_position, group.told_at = upto.position, self._log.env.monotonic()
        ours = self._mark.position
        seen_all = max(upto.position, ours + 1)
        prefix = frame = b""
        for number, member in enumerate(list(group.members), 1):
            if not number % BREATH:
                await trio.lowlevel.checkpoint()
            place = group.members.get(member)
            if place is None or place.position >= seen_all:
                continue  # it is gone, or it came after it had seen all of this
            if member.prefix != prefix:  # few differ: most connections begin with the same id
                prefix = member.prefix
                frame = framed(group.format.opcode, prefix + batch)
            if place.position > ours or not member.take(frame, count):
                self._send_away(member)
                continue
            group.members[member] = upto
            if ends:
                self.drop(member)
                member.leave(cursor)

    def _send_away(self, member: Member) -> None:
        """Let a follower go on alone."""
        self.drop(member)
        member.leave(None)

    def _send_everybody_away(self) -> None:
        """The log is faster than this task: every follower goes back to pulling."""
        for group in list(self._groups.values()):
            self._send_group_away(group)

    def _send_group_away(self, group: _Group) -> None:
        for member in list(group.members):
            self._send_away(member)


def _only(where: Filter) -> str | None:
    """Name the one stream or scope that a filter lets pass, if it is only one."""
    if where.only_stream is not None:
        return where.only_stream
    return None if where.only_scope is None else _of_scope(where.only_scope)


def _of_scope(scope: str) -> str:
    """Tell the name of a scope from that of a stream."""
    return f"scope:{scope}"


def _few(records: Sequence[Record]) -> Sequence[Record]:
    """Give the first of some records, of so many bytes: a stalled follower holds a frame."""
    size = 0
    for count, record in enumerate(records, 1):
        size += record.size
        if size >= BATCH_BYTES:
            return records[:count]
    return records
