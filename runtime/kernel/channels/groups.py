"""Pushes what is committed to all live subscriptions, encoded once for each group of them.

Live subscriptions with the same selection and the same encoding are a group: they are all at the
place up to which this task has come. A committed batch is selected and encoded once for a group and
given to each member without waiting, so that a thousand followers cost one task. Who cannot take it
at once leaves the group at the place where it was, goes on from there by its own pulling, and comes
back when it is live again. So does a whole group whose portion of a batch is too much for one
delivery: groups only ever push what one pull of their members would have given.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from perdure.eventlog.filter import EVERYTHING, Filter
from perdure.eventlog.follow import FollowLimits, Heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from perdure.eventlog.follow import FollowedLog
    from perdure.eventlog.record import Mark, Record
    from perdure.runtime.kernel.channels.channel import Channel
    from perdure.runtime.kernel.channels.event import ChannelEvent
    from perdure.runtime.kernel.channels.selection import Portion, Selection
    from perdure.runtime.kernel.channels.subscription import Subscription

    Take = Callable[[Any, int], bool]  # sends a batch of so many events now; False if it cannot

_log = logging.getLogger("perdure.followers")
STEP: Final = 256  # records at a time: few are encoded before the first is sent
BREATH: Final = 64  # batches that are taken, or groups passed by, before others do something


class Encoding(Protocol):
    """How the members of a group are written to."""

    @property
    def name(self) -> str:
        """What tells it from others."""

    def group_batch(self, events: Sequence[ChannelEvent], cursor: str | None) -> Any:  # noqa: ANN401
        """Write, once for all members of a group, what each of them takes."""


class _Member:
    """A live subscription, and the place up to which it was served, or at which it came."""

    __slots__ = ("left", "place", "subscription", "take")

    def __init__(self, subscription: Subscription, take: Take) -> None:
        self.subscription = subscription
        self.take = take
        self.place = subscription.follow.mark
        self.left = trio.Event()


class _Group:
    """Live subscriptions that get the same bytes."""

    def __init__(self, selection: Selection, encoding: Encoding, heartbeat: Heartbeat) -> None:
        self.selection = selection
        self.encoding = encoding
        self.heartbeat = heartbeat
        self.only = _only(selection.where)
        self.key = _key(selection, encoding)
        self.members: dict[_Member, None] = {}  # in the order in which they came


class _Round:
    """Records that have just been committed. Each is shown and encoded once, for all groups."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.upto = records[-1].mark
        self._shown: dict[tuple[str, int], Sequence[ChannelEvent]] = {}

    def portion(self, selection: Selection) -> Portion | None:
        """Give what a selection gets of them; None if it does not get all of it at once."""
        shown = partial(self._shown_of, selection.channel)
        portion = selection.portion(self.records, selection.limit, read=EVERYTHING, shown=shown)
        return portion if portion.taken == len(self.records) else None

    def names(self) -> Iterable[str | None]:
        """Name the streams that they belong to, and the scopes, each once; None is for all."""
        names: dict[str | None, None] = {None: None}
        for record in self.records:
            names[record.stream] = names[_of_scope(record.scope)] = None
        return names

    def _shown_of(self, channel: Channel, records: Sequence[Record]) -> list[ChannelEvent]:
        events: list[ChannelEvent] = []
        for record in records:
            key = (channel.name, record.position)
            if key not in self._shown:
                self._shown[key] = channel.show(record)
            events += self._shown[key]
        return events


class Groups:
    """The one task that serves all live subscriptions of a log."""

    def __init__(self, log: FollowedLog, limits: FollowLimits) -> None:
        """Begin at the head of the log, with nobody to serve."""
        self._log = log
        self._limits = limits
        self._beats_at = log.env.monotonic() + limits.heartbeat
        self._mark = log.tail.head  # where all members are
        self._groups: dict[Hashable, _Group] = {}
        self._by_name: dict[str | None, list[_Group]] = {}  # of a stream or scope; None: of many

    async def serve(self, subscription: Subscription, encoding: Encoding, take: Take) -> None:
        """Push to a subscription until it has ended or has to pull; not at all if it is behind."""
        if subscription.follow.mark != self._log.tail.head:
            return
        member = _Member(subscription, take)
        group = self._group(subscription.selection, encoding)
        group.members[member] = None
        try:
            await member.left.wait()
        finally:
            self._drop(group, member)

    def _group(self, selection: Selection, encoding: Encoding) -> _Group:
        """Give the group of a selection; make it for the first member."""
        group = self._groups.get(_key(selection, encoding))
        if group is None:
            group = _Group(selection, encoding, self._told(self._log.tail.head))
            self._groups[group.key] = group
            self._by_name.setdefault(group.only, []).append(group)
        return group

    def _drop(self, group: _Group, member: _Member) -> None:
        """Let go of a member, if it is here: it has seen all up to where it is told to go on."""
        if member not in group.members:
            return
        del group.members[member]
        member.subscription.follow.move_to(max(member.place, self._mark))
        if group.members:
            return
        del self._groups[group.key]
        alike = self._by_name[group.only]
        alike.remove(group)
        if not alike:
            del self._by_name[group.only]

    async def run(self) -> None:
        """Serve until the log closes."""
        tail = self._log.tail
        while True:
            signal = tail.signal  # taken before looking, so no wake-up is lost
            self._log.raise_if_closed()
            records = tail.after(self._mark.position, STEP, self._limits.bytes)
            if records is None:  # the log is faster than this task
                for group in list(self._groups.values()):
                    self._send_away(group, list(group.members))
                self._mark = tail.head
            elif records:
                if self._groups:
                    await self._push(_Round(records))
                self._mark = records[-1].mark
                await trio.lowlevel.checkpoint()
            else:
                with trio.move_on_at(self._beats_at):
                    await tail.wait(signal)
            if self._log.env.monotonic() >= self._beats_at:
                await self._beat()

    async def _push(self, round_: _Round) -> None:
        """Give each group what it gets."""
        groups = [group for name in round_.names() for group in self._by_name.get(name, ())]
        for number, group in enumerate(groups, 1):
            if not number % BREATH:
                await trio.lowlevel.checkpoint()
            portion = self._portion(group, round_)
            if portion is None:
                self._send_away(group, list(group.members))
            elif portion.events or portion.end:
                await self._send(group, portion.events, round_.upto, end=portion.end)

    def _portion(self, group: _Group, round_: _Round) -> Portion | None:
        """Give what a group gets; None if its members have to pull it, one delivery at a time.

        A channel that cannot show a record hurts its own followers alone: each is told so.
        """
        try:
            return round_.portion(group.selection)
        except Exception:  # noqa: BLE001 - the edge of a channel: other followers go on
            _log.exception("the channel %s cannot show a record", group.selection.channel.name)
            return None

    async def _beat(self) -> None:
        """Tell those who have heard nothing for long where the log is now."""
        now = self._log.env.monotonic()
        self._beats_at = now + self._limits.heartbeat
        for group in list(self._groups.values()):
            if now >= group.heartbeat.due_at(self._mark.position):
                await self._send(group, [], self._mark, end=False)

    def _told(self, mark: Mark) -> Heartbeat:
        now = self._log.env.monotonic()
        return Heartbeat.told(self._limits.heartbeat, mark.position, now)

    async def _send(
        self, group: _Group, events: Sequence[ChannelEvent], upto: Mark, *, end: bool
    ) -> None:
        """Give a batch to a whole group."""
        batch, count = group.encoding.group_batch(events, self._log.cursor(upto)), len(events)
        group.heartbeat = self._told(upto)
        ours = self._mark.position
        seen_all = max(upto.position, ours + 1)
        for number, member in enumerate(list(group.members), 1):
            if not number % BREATH:
                await trio.lowlevel.checkpoint()
            position = member.place.position
            if member not in group.members or position >= seen_all:
                continue  # it is gone, or it came after it had seen all of this
            if position > ours or not member.take(batch, count):
                self._send_away(group, [member])
                continue
            member.place = upto
            if end:
                member.subscription.ended = True
                self._send_away(group, [member])

    def _send_away(self, group: _Group, members: Iterable[_Member]) -> None:
        """Let members go on alone."""
        for member in members:
            self._drop(group, member)
            member.left.set()


def _key(selection: Selection, encoding: Encoding) -> Hashable:
    return selection.key, encoding.name


def _only(where: Filter) -> str | None:
    """Name the one stream or scope that a filter lets pass, if it is only one."""
    if where.only_stream is not None:
        return where.only_stream
    return None if where.only_scope is None else _of_scope(where.only_scope)


def _of_scope(scope: str) -> str:
    """Tell the name of a scope from that of a stream."""
    return f"scope:{scope}"
