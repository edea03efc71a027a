"""What a channel lets pass, and how it shows each record that does.

Both are pure: the same record always gives the same event, so whoever comes back with a cursor
misses nothing and gets nothing twice.

    runs     changes of runs, small enough to send to everybody
    export   what runs put out
    run      both of one run, in order
    log      the records themselves, for operators
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

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
)
from perdure.actors.run.stream import stream_of
from perdure.actors.run.views import delta, export_item
from perdure.eventlog.filter import Filter
from perdure.runtime.kernel.channels.event import Shown
from perdure.runtime.kernel.channels.record_event import ShownRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from perdure.eventlog.record import FieldValue, Record
    from perdure.runtime.kernel.principal import Principal
    from perdure.runtime.runs.requests import FollowLog

_CHANGES: Final = frozenset(
    event.event_name
    for event in (
        RunCreated,
        Activated,
        Answered,
        ProgressReported,
        StageChanged,
        CancelRequested,
        RunEnded,
    )
)
_EXPORTS: Final = frozenset({ExportAppended.event_name})
_REPORTS: Final = {ProgressReported.event_name: "progress", StageChanged.event_name: "stage"}


class Channel(NamedTuple):
    """A channel: the events that concern it, and what it makes of a record."""

    name: str
    names: frozenset[str] | None  # of events; None is all of them
    show: Callable[[Record], Shown | None]

    def wants(self, principal: Principal, request: FollowLog) -> Filter:
        """Say what passes: all that the request states must match."""
        fields: dict[str, frozenset[FieldValue]] = {}
        if self.name != "log":
            fields["tenant"] = frozenset({principal.tenant})
        for name in ("task_id", "plugin_id", "entry_id"):
            wanted = getattr(request, name)
            if wanted is not None:
                fields[name] = frozenset({wanted})
        if request.status is not None:
            fields["status"] = frozenset(request.status)
            if self.name == "runs":
                fields["changed"] = frozenset({True})
        streams = None if request.run_id is None else frozenset({stream_of(request.run_id)})
        return Filter(streams=streams, names=self.names, fields=fields)

    def shown(self, records: Iterable[Record]) -> list[Shown]:
        """Show some records."""
        if self.names is None:
            return [shown for record in records if (shown := self.show(record))]
        return thinned([shown for record in records if (shown := self.show(record)) is not None])


def thinned(shown: list[Shown]) -> list[Shown]:
    """Keep of the reports of a run the last of each kind, and all else.

    Whoever lags behind is told where a run is, not each step of how it got there.
    """
    if not any(one.report is not None for one in shown):
        return shown
    kept: list[Shown] = []
    reported: set[tuple[str, str]] = set()
    for one in reversed(shown):
        if one.report is not None:
            if one.report in reported:
                continue
            reported.add(one.report)
        kept.append(one)
    kept.reverse()
    return kept


def _change(record: Record) -> Shown | None:
    change = delta(record)
    if change is None:
        return None
    kind = _REPORTS.get(record.name)
    report = None if kind is None else (record.stream, kind)
    return Shown("run", record.mark, change, report=report)


def _item(record: Record) -> Shown | None:
    if record.name != ExportAppended.event_name:
        return None
    item = export_item(record.stream.removeprefix("run/"), RUN_EVENTS.decode(record))
    return Shown("export", record.mark, item)


def _either(record: Record) -> Shown | None:
    shown = _item(record) or _change(record)
    if shown is None:
        return None
    event = {shown.kind: shown.as_event()}
    return Shown(shown.kind, shown.mark, event, report=shown.report)


CHANNELS: Final = {
    "runs": Channel("runs", _CHANGES, _change),
    "export": Channel("export", _EXPORTS, _item),
    "run": Channel("run", _CHANGES | _EXPORTS, _either),
    "log": Channel("log", None, ShownRecord),
}
