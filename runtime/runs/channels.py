"""The channels about runs.

runs     changes of runs, small enough to send to every follower
export   what runs put out
run      both of one run, in order
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NotRequired, TypedDict

from perdure.actors.run.events import (
    RUN_EVENTS,
    Activated,
    Answered,
    CancelRequested,
    ExportAppended,
    ProgressReported,
    RunCreated,
    RunEnded,
    StageChanged,
    StepFailed,
    StepRecorded,
)
from perdure.actors.run.stream import run_id_of, stream_of
from perdure.actors.run.views import REPORTS, ExportItem, RunDelta, delta
from perdure.eventlog.filter import Filter
from perdure.runtime.kernel.channels.channel import (
    Channel,
    EventRoute,
    Filters,
    Opening,
    open_filtered,
)
from perdure.runtime.kernel.channels.event import ChannelEvent
from perdure.runtime.kernel.invalid_value import invalid
from perdure.runtime.kernel.requests import Name
from perdure.runtime.runs.export_view import export_view
from perdure.runtime.runs.initial_runs import InitialRuns
from perdure.runtime.runs.requests import RunStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.eventlog.record import FieldValue, Mark, Record
    from perdure.runtime.kernel.principal import Principal
    from perdure.runtime.runs.part import RunsPart

_CHANGES: Final = frozenset(
    event.event_name
    for event in (
        RunCreated,
        Activated,
        Answered,
        ProgressReported,
        StageChanged,
        StepRecorded,  # it may end the stage of a run that tries a step again
        StepFailed,
        CancelRequested,
        RunEnded,
    )
)
_EXPORTS: Final = frozenset({ExportAppended.event_name})


class RunEvent(TypedDict):
    """Something that happened to one run: a change of it, or what it put out."""

    run: NotRequired[RunDelta]
    export: NotRequired[ExportItem]


class RunFilters(Filters):
    """Which runs are followed. With ``status``: runs that enter one of these."""

    run_id: Name | None = None
    task_id: Name | None = None
    plugin_id: Name | None = None
    entry_id: Name | None = None
    started_by: Name | None = None
    status: list[RunStatus] | None = None

    async def open(self, part: RunsPart, principal: Principal) -> Opening:
        """Let pass what is stated; a follow of one run ends with it."""
        fields: dict[str, frozenset[FieldValue]] = {
            name: frozenset({wanted})
            for name in ("task_id", "plugin_id", "entry_id", "started_by")
            if (wanted := getattr(self, name)) is not None
        }
        if self.status is not None:
            fields["status"] = frozenset(self.status)
        if self.run_id is None:
            return Opening(where=Filter(fields=fields))
        await part.reader.require(principal, self.run_id)
        stream = stream_of(self.run_id)
        return Opening(
            where=Filter(streams=frozenset({stream}), fields=fields),
            ends_with=stream,
            has_ended=partial(_has_ended, part, principal, self.run_id),
        )


async def _has_ended(part: RunsPart, principal: Principal, run_id: str, at: Mark) -> bool:
    folded = await part.reader.now(principal, run_id)
    return folded.state.status.is_terminal and folded.mark.position <= at.position


async def _open_changes(part: RunsPart, principal: Principal, filters: RunFilters) -> Opening:
    """Begin with the runs that have not ended; with ``status``, go on with those entering it."""
    opening = await open_filtered(part, principal, filters)
    if filters.status is not None:
        entering = Filter(fields={"changed": frozenset({True})})
        opening = replace(opening, where=opening.where & entering)

    async def initial() -> InitialRuns:
        one = filters.run_id is not None  # which is read, and not listed
        at = await (part.reader.head() if one else part.index.place())
        return InitialRuns(part.index, part.reader, principal, filters, at)

    return replace(opening, initial=initial)


async def _open_one(part: RunsPart, principal: Principal, filters: RunFilters) -> Opening:
    if filters.run_id is None:
        raise invalid("the channel run needs a run_id", "run_id", "a value", "nothing")
    return await open_filtered(part, principal, filters)


def _change(record: Record) -> Sequence[ChannelEvent]:
    change = delta(record)
    if change is None:
        return ()
    is_report = record.name in REPORTS
    return (ChannelEvent("run", record.mark, change, subject=record.stream, is_report=is_report),)


def _item(record: Record) -> Sequence[ChannelEvent]:
    if record.name != ExportAppended.event_name:
        return ()
    item = export_view(run_id_of(record.stream), RUN_EVENTS.decode(record))
    return (ChannelEvent("export", record.mark, item),)


def _either(record: Record) -> Sequence[ChannelEvent]:
    return [
        ChannelEvent(
            event.kind,
            event.mark,
            event.as_event(),
            subject=event.subject,
            is_report=event.is_report,
            field=event.kind,
        )
        for event in _item(record) or _change(record)
    ]


_NOT_FOUND: Final = ("RUN_NOT_FOUND",)
_COMMON: Final[dict[str, Any]] = {"filters": RunFilters, "errors": _NOT_FOUND}

RUN_CHANNELS: Final = (
    Channel(
        name="runs",
        about=(
            "changes of runs, with ``status`` those that enter one of these; without ``after`` it"
            " begins with the runs that have not ended"
        ),
        event=RunDelta,
        names=_CHANGES,
        show=_change,
        open=_open_changes,
        routes=(
            EventRoute(
                path="/events/runs",
                name="events.runs",
                summary="Follow changes of runs, as server-sent events.",
            ),
        ),
        **_COMMON,
    ),
    Channel(
        name="export",
        about="what runs put out",
        event=ExportItem,
        names=_EXPORTS,
        show=_item,
        routes=(
            EventRoute(
                path="/events/export",
                name="events.export",
                summary="Follow what runs put out, as server-sent events.",
            ),
        ),
        **_COMMON,
    ),
    Channel(
        name="run",
        about="both of one run",
        event=RunEvent,
        names=_CHANGES | _EXPORTS,
        show=_either,
        open=_open_one,
        routes=(
            EventRoute(
                path="/runs/{run_id}/events",
                name="events.run",
                summary="Follow one run, its changes and what it puts out, until its end.",
            ),
        ),
        **_COMMON,
    ),
)
