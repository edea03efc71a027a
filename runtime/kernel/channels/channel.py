"""A channel: the log as its followers want to see it, as data.

What passes and how it is shown are pure: the same record always gives the same events, so a
follower that comes back with a cursor misses nothing and gets nothing twice. A record may give
several events; they share its cursor, and nothing that is sent ends between them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from perdure.eventlog.filter import Filter
from perdure.eventlog.record import Mark, Record
from perdure.runtime.kernel.channels.event import ChannelEvent
from perdure.runtime.kernel.principal import Permission, Principal


class InitialPages(Protocol):
    """What exists when a follower begins, as events at one place in the log."""

    @property
    def at(self) -> Mark:
        """The place, from which the follower goes on."""

    @property
    def more(self) -> bool:
        """Whether there is another page."""

    async def next_page(self, limit: int) -> list[ChannelEvent]:
        """Give the next so many. Cancelling it loses nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What one follower gets: the records that pass, how it begins, and when it ends."""

    where: Filter
    ends_with: str | None = None  # the stream with whose end the follow ends
    has_ended: Callable[[Mark], Awaitable[bool]] | None = None  # at a place; with ``ends_with``
    # for those who come without a cursor
    initial: Callable[[], Awaitable[InitialPages]] | None = None


class Filters(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a follower may state; all of it must match."""

    async def open(self, part: Any, principal: Principal) -> Opening:  # noqa: ANN401, ARG002
        """Check what is stated, and give what passes. ``part`` is the feature at work."""
        return Opening(where=Filter())


async def open_filtered(part: Any, principal: Principal, filters: Filters) -> Opening:  # noqa: ANN401
    """Let pass what is stated, of the follower's own tenant."""
    opening = await filters.open(part, principal)
    tenant = Filter(fields={"tenant": frozenset({principal.tenant})})
    return replace(opening, where=opening.where & tenant)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRoute:
    """Where a channel is followed over HTTP."""

    path: str  # with names of filters in it, only those can be stated
    name: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """Something that can be followed."""

    name: str
    about: str  # what its events are, as a part of a sentence
    event: Any  # their type
    names: frozenset[str] | None  # of the stored events that concern it; None is all of them
    show: Callable[[Record], Sequence[ChannelEvent]]
    filters: type[Filters] = Filters
    open: Callable[[Any, Principal, Any], Coroutine[Any, Any, Opening]] = open_filtered
    permission: Permission = Permission.READ
    errors: tuple[str, ...] = ()
    routes: tuple[EventRoute, ...] = ()

    def shown(self, records: Sequence[Record]) -> list[ChannelEvent]:
        """Give the events of some records."""
        return [event for record in records for event in self.show(record)]
