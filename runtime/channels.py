"""Channels: the log as its followers want to see it.

A channel is a filter and a pure view of each record that passes. A follower pulls one frame at a
time and goes on from its cursor after whatever happened: the same record always gives the same
event, so nothing is missed and nothing comes twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from actors.run.events import (
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
from actors.run.status import TERMINAL, Status
from actors.run.views import ExportItem, RunDelta, addition, delta, export_item, thinned
from eventlog import cbor
from eventlog.filter import Filter
from eventlog.follow import FollowLimits
from runtime.answers import Frame, LogRecord
from runtime.directory import RunFilter
from runtime.errors import OperationError, translated
from runtime.operations import operation
from runtime.principal import Permission, Principal
from runtime.reader import RunReader
from runtime.requests import FollowLog
from runtime.streams import stream_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eventlog.follow import Follow
    from eventlog.log import EventLog
    from eventlog.record import FieldValue, Mark, Record
    from runtime.catalogue import Catalogue
    from runtime.host import Host

    View = Callable[[Sequence[Record]], list[Any]]

_OPEN: Final = frozenset(status.value for status in Status if status not in TERMINAL)
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


class Channels:
    """The channels of one host."""

    def __init__(self, host: Host, catalogue: Catalogue) -> None:
        """Show what is in the host's log."""
        self._log = host.log
        self._catalogue = catalogue
        self._reader = RunReader(host.log, host.runs)

    @operation("log.follow", Permission.READ, "RUN_NOT_FOUND", "INVALID_CURSOR", frames=Frame)
    async def follow(self, principal: Principal, request: FollowLog) -> Following:
        """Follow changes of runs, their exports, or the log itself, from a cursor on."""
        if request.channel == "log" and Permission.OPERATE not in principal.permissions:
            raise OperationError("PERMISSION_DENIED", "the raw log is for operators")
        if request.run_id is not None:
            await self._reader.require(principal, request.run_id)
        limits = FollowLimits(records=request.limit)
        where = _filter(principal, request)
        view = self._view(request)
        if request.channel == "runs" and request.after is None:
            head = await self._log.head()
            listing = _Listing(self._catalogue, self._reader, principal, request, head)
            return Following(await self._log.follow(head, where, limits), view, listing)
        return Following(await self._log.follow(request.after, where, limits), view)

    def _view(self, request: FollowLog) -> View:
        if request.channel == "runs":
            return _deltas
        if request.channel == "export":
            return _items
        return lambda records: [_log_record(self._log, record) for record in records]


class Following:
    """One follower of a channel: pull a frame, deal with it, pull the next."""

    def __init__(self, follow: Follow, view: View, listing: _Listing | None = None) -> None:
        """Begin with a listing, if there is one, and go on with what follows."""
        self._follow = follow
        self._view = view
        self._listing = listing

    async def next_frame(self) -> Frame:
        """Wait for the next events, for the live edge, or for a heartbeat.

        Cancelling it loses nothing: what was not returned comes with the next call.
        """
        try:
            if self._listing is not None:
                events = await self._listing.next_page()
                if self._listing.more:
                    return {"events": events, "cursor": None, "live": False}
                self._listing = None
                return {"events": events, "cursor": self._follow.cursor, "live": False}
            batch = await self._follow.next_batch()
        except Exception as error:
            raise translated(error) from error
        return {"events": self._view(batch.records), "cursor": batch.cursor, "live": batch.live}


class _Listing:
    """The runs that exist when somebody begins to follow, page by page, all at one place."""

    def __init__(
        self,
        catalogue: Catalogue,
        reader: RunReader,
        principal: Principal,
        request: FollowLog,
        at: Mark,
    ) -> None:
        """List what has not ended; a run that was asked for by its id is shown in any case."""
        self._catalogue = catalogue
        self._reader = reader
        self._principal = principal
        self._request = request
        self._at = at
        self._before: int | None = None
        self.more = True
        statuses = _OPEN if request.status is None else _OPEN & frozenset(request.status)
        self._where = RunFilter(
            tenant=principal.tenant,
            plugin_id=request.plugin_id,
            entry_id=request.entry_id,
            task_id=request.task_id,
            statuses=statuses,
        )

    async def next_page(self) -> list[RunDelta]:
        if self._request.run_id is not None:
            self.more = False
            return await self._additions([self._request.run_id])
        limit = self._request.limit
        found, _ = await self._catalogue.list(
            self._where, before=self._before, at=self._at, limit=limit
        )
        if found:
            self._before = found[-1].position
        self.more = len(found) == limit
        return await self._additions([listed.run_id for listed in found])

    async def _additions(self, run_ids: Sequence[str]) -> list[RunDelta]:
        runs = await self._reader.all_at(self._principal, run_ids, self._at)
        return [addition(folded.state, folded.commit_time) for folded in runs]


def _filter(principal: Principal, request: FollowLog) -> Filter:
    """Say what passes: by index where one run is wanted, by the records' own fields otherwise."""
    fields: dict[str, frozenset[FieldValue]] = {}
    if request.channel != "log":
        fields["tenant"] = frozenset({principal.tenant})
    for name in ("task_id", "plugin_id", "entry_id"):
        wanted = getattr(request, name)
        if wanted is not None:
            fields[name] = frozenset({wanted})
    if request.status is not None:
        fields["status"] = frozenset(request.status)
        if request.channel == "runs":
            fields["changed"] = frozenset({True})
    names = {"runs": _CHANGES, "export": _EXPORTS, "log": None}[request.channel]
    streams = None if request.run_id is None else frozenset({stream_of(request.run_id)})
    return Filter(streams=streams, names=names, fields=fields)


def _deltas(records: Sequence[Record]) -> list[RunDelta]:
    return thinned([change for record in records if (change := delta(record)) is not None])


def _items(records: Sequence[Record]) -> list[ExportItem]:
    return [
        export_item(record.stream.removeprefix("run/"), RUN_EVENTS.decode(record))
        for record in records
    ]


def _log_record(log: EventLog, record: Record) -> LogRecord:
    metadata = record.metadata
    return {
        "position": record.position,
        "cursor": log.cursor(record.mark),
        "stream": record.stream,
        "version": record.version,
        "scope": record.scope,
        "name": record.name,
        "schema": record.schema,
        "event_id": record.event_id.hex(),
        "event_time": record.event_time,
        "commit_time": record.commit_time,
        "sealed": bool(record.seal),
        "metadata": {
            "principal": metadata.principal,
            "causation": metadata.causation,
            "trace": metadata.trace,
            "fields": dict(metadata.fields),
        },
        "body": cbor.decode(record.body),
    }
