"""The channel of the raw log, for operators. It takes the filters of all other channels."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.eventlog.filter import Filter
from perdure.runtime.kernel.channels.channel import Channel, EventRoute, Filters, Opening
from perdure.runtime.kernel.channels.record_event import LogRecord, RecordEvent
from perdure.runtime.kernel.principal import Permission

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perdure.eventlog.record import Record
    from perdure.runtime.kernel.channels.event import ChannelEvent
    from perdure.runtime.kernel.principal import Principal

LOG: Final = "log"


def log_channel(others: Iterable[Channel]) -> Channel:
    """Give the channel of records themselves, filtered as any other channel is."""
    groups = list(dict.fromkeys(channel.filters for channel in others))
    errors = dict.fromkeys(code for channel in others for code in channel.errors)

    async def open_log(
        parts: Mapping[type[Filters], Any], principal: Principal, stated: Filters
    ) -> Opening:
        openings = [
            await filters.open(parts[group], principal)
            for group in groups
            if (filters := _part_of(group, stated)) is not None
        ]
        ending = next((each for each in openings if each.ends_with is not None), Opening(where=ALL))
        where = reduce(and_, (each.where for each in openings), ALL)
        return Opening(where=where, ends_with=ending.ends_with, has_ended=ending.has_ended)

    return _LogChannel(
        name=LOG,
        about="the records themselves",
        event=LogRecord,
        names=None,
        show=lambda record: (RecordEvent(record),),
        filters=merged_filters("LogFilters", groups),
        open=open_log,
        permission=Permission.OPERATE,
        errors=tuple(errors),
        routes=(
            EventRoute(
                path="/events/log",
                name="events.log",
                summary="Follow the log itself, as server-sent events.",
            ),
        ),
    )


ALL: Final = Filter()


class _LogChannel(Channel):
    """Each record is an event: a log is replayed by the hundred thousand."""

    def shown(self, records: Sequence[Record]) -> list[ChannelEvent]:
        """Give the records as they are."""
        return list(map(RecordEvent, records))


def merged_filters(name: str, groups: Sequence[type[Filters]]) -> type[Filters]:
    """Give a type with the fields of all groups; a field of two groups means the same in both."""
    fields: dict[str, Any] = {}
    for group in groups:
        for field in msgspec.structs.fields(group):
            if fields.setdefault(field.name, field.type) != field.type:
                raise ValueError(f"two channels filter by {field.name!r} and mean different things")
    merged: type[Any] = msgspec.defstruct(
        name,
        [(field, kind, None) for field, kind in fields.items()],
        bases=(Filters,),
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return merged


def _part_of(group: type[Filters], stated: Filters) -> Filters | None:
    """Give what is stated of a group; None if nothing is."""
    values = {name: getattr(stated, name) for name in group.__struct_fields__}
    return group(**values) if any(value is not None for value in values.values()) else None
