"""The operation that follows a channel."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

import msgspec

from perdure.eventlog.follow import FollowLimits
from perdure.runtime.kernel.channels.log_channel import merged_filters
from perdure.runtime.kernel.channels.selection import Selection
from perdure.runtime.kernel.channels.subscription import Subscription
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.invalid_value import invalid
from perdure.runtime.kernel.operations import Operation, operation, operations_of
from perdure.runtime.kernel.principal import Permission, Principal
from perdure.runtime.kernel.requests import After, Limit, Request
from perdure.runtime.kernel.socket_protocol import FOLLOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perdure.eventlog.log import EventLog
    from perdure.eventlog.record import Mark
    from perdure.runtime.kernel.channels.channel import Channel, Filters

BATCH_BYTES: Final = 64 << 10  # of records in a delivery: a stalled follower holds some copies
EVENTS: Final = 500  # in a delivery


_RULES: Final = (
    "All that is stated must match. A follow of one object ends together with it. Without ``after``"
    " a channel begins with what its description says, else with the log."
)


class FollowLog(Request):
    """Follow a channel from a cursor on. What else can be stated depends on the channels."""

    channel: str
    after: After | None = None
    limit: Limit = EVENTS


class Frame(TypedDict):
    """Some events of a channel, in order.

    ``cursor`` leads on from here; it is null until the initial listing is complete. ``live`` says
    that nothing newer was known, ``end`` that nothing will follow: what was followed has ended. A
    frame without events is a heartbeat.
    """

    events: list[Any]
    cursor: str | None
    live: bool
    end: bool


class Channels:
    """The channels of one log."""

    def __init__(
        self, log: EventLog, channels: Mapping[str, Channel], parts: Mapping[str, Any]
    ) -> None:
        """Show what is in a log; ``parts`` are the features at work, by channel."""
        self._log = log
        self._channels = channels
        self._parts = parts
        self.limits = FollowLimits(bytes=BATCH_BYTES)
        self.followers = Counter[str]()  # how many follow, by surface

    @operation(FOLLOW, Permission.READ, "INVALID_CURSOR", frames=Frame)
    async def follow(self, principal: Principal, request: FollowLog) -> Subscription:
        """Follow a channel from a cursor on."""
        channel = self._channels[request.channel]
        if channel.permission not in principal.permissions:
            raise OperationError(
                "PERMISSION_DENIED",
                f"the channel {channel.name} needs the permission to {channel.permission}",
            )
        filters = _filters_of(channel, request)
        opening = await channel.open(self._parts.get(channel.name), principal, filters)
        selection = Selection(channel, opening.where, opening.ends_with, limit=request.limit)
        begin: str | Mark | None = request.after
        initial = None
        if opening.initial is not None and request.after is None:
            initial = await opening.initial()
            begin = initial.at
        follow = await self._log.follow(begin, selection.read, self.limits)
        return Subscription(selection, follow, has_ended=opening.has_ended, initial=initial)


def _filters_of(channel: Channel, request: FollowLog) -> Filters:
    """Give what a request states as the filters of its channel."""
    known = channel.filters.__struct_fields__
    stated = {
        name: value
        for name in request.__struct_fields__
        if name not in FollowLog.__struct_fields__ and (value := getattr(request, name)) is not None
    }
    if unknown := sorted(stated.keys() - set(known)):
        told = f"the channel {channel.name} has no filter {unknown[0]!r}"
        raise invalid(told, unknown[0], f"one of the names {', '.join(sorted(known))}")
    return channel.filters(**stated)


def follow_operation(channels: Iterable[Channel]) -> Operation:
    """Give the row of the table for following these channels."""
    channels = list(channels)
    (row,) = operations_of(Channels).values()
    errors = dict.fromkeys(code for channel in channels for code in channel.errors)
    return replace(row, request=_request_for(channels), errors=(*row.errors, *errors))


def _request_for(channels: Iterable[Channel]) -> type[FollowLog]:
    """Give the type of a request to follow: which channels there are, and all their filters."""
    names = [channel.name for channel in channels]
    filters = merged_filters("AllFilters", list(dict.fromkeys(each.filters for each in channels)))
    about = "; ".join(f"``{channel.name}``: {channel.about}" for channel in channels)
    made: type[Any] = msgspec.defstruct(
        "FollowLog",
        [
            ("channel", Literal[tuple(names)]),
            ("after", After | None, None),
            *((each.name, each.type, None) for each in msgspec.structs.fields(filters)),
            ("limit", Limit, EVENTS),
        ],
        bases=(FollowLog,),
        namespace={"__doc__": f"Follow a channel from a cursor on.\n\n{about}. {_RULES}"},
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return made
