"""Runs at work in a node: the host that executes them, and the services that are asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_args

import trio

from perdure.actors.run.outbox import PROGRESS_ITEMS, WINDOW
from perdure.actors.run.output import EXPORT_FIELDS
from perdure.actors.run.status import Status
from perdure.runtime.blobs.references import References
from perdure.runtime.blobs.store import BlobStore
from perdure.runtime.execution.host import Host
from perdure.runtime.execution.limits import HostLimits
from perdure.runtime.execution.recovery import drop_old_seals, recover, take_up
from perdure.runtime.kernel.claims import CLAIM_WINDOW
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.feature import Part
from perdure.runtime.kernel.figures import figure, figures_by
from perdure.runtime.kernel.opening import StoppedOpening, unless_stopped
from perdure.runtime.plugins.plugin import Plugin
from perdure.runtime.process.pool import Pool
from perdure.runtime.runs.bulk import RATE, Bulk
from perdure.runtime.runs.direct_runs import DirectRuns
from perdure.runtime.runs.index import RunIndex
from perdure.runtime.runs.operations import Runs
from perdure.runtime.runs.plugin_list import PluginList
from perdure.runtime.runs.reader import RunReader
from perdure.runtime.runs.requests import RunStatus
from perdure.runtime.runs.settings import TriggerMode
from perdure.runtime.runs.trigger import Trigger
from perdure.runtime.runs.uploads import MAX_UPLOADS, Uploads
from perdure.runtime.secrets.secrets import Secrets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from perdure.eventlog.log import EventLog
    from perdure.eventlog.record import Mark
    from perdure.runtime.kernel.figures import Figure
    from perdure.runtime.kernel.live_listing import LiveListing
    from perdure.runtime.kernel.node import Node
    from perdure.runtime.runs.index import Listed

OPENING: Final = 5.0  # seconds after which a node is open while it still takes up runs
LOOK_AGAIN: Final = 1.0  # seconds between two questions for the runs that have not ended
_NANOSECONDS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResources:
    """What runs need of the world. Blobs, references and secrets are in memory unless stated.

    ``only`` names the runs that this process takes up; the others that have not ended are left as
    they are, for a process that serves the log.
    """

    plugins: Mapping[str, Plugin]
    limits: HostLimits | None = None
    claim_window: int = CLAIM_WINDOW  # nanoseconds
    only: Collection[str] | None = None
    blobs: BlobStore | None = None
    references: References | None = None
    secrets: Secrets | None = None
    bulk_rate: float = RATE
    trigger: TriggerMode = "runs"


class RunsPart(Part):
    """Runs at work in a node."""

    def __init__(self, host: Host, index: RunIndex, resources: RunResources) -> None:
        """Offer the operations on runs."""
        self.host = host
        self.index = index
        self.reader = RunReader(host.log, host.runs)
        self.runs = Runs(host, index, claim_window=resources.claim_window)
        self.uploads = Uploads(host, resources.references or References())
        self._trigger = resources.trigger
        bulk = Bulk(host, index, self.runs.creation, rate=resources.bulk_rate)
        services = [self.runs, bulk, PluginList(host), self.uploads]
        if self._trigger == "runs":
            services.append(Trigger(self.runs.create))
        elif self._trigger == "direct":
            services.append(Trigger(DirectRuns(host).create, recorded=False))
        self.services = services

    @property
    def busy(self) -> int:
        """How many runs are being executed."""
        return self.host.running

    @property
    def waiting(self) -> int:
        """How many runs wait for their turn."""
        return self.host.waiting

    def close(self) -> None:
        """Take no new runs and start none that wait."""
        self.host.close()

    async def at_rest(self, until: int) -> None:
        """Wait until no run is executed but those that only wait, and still will at an instant."""
        await self.host.at_rest(until)

    def drain(self) -> None:
        """Let go of the runs that are being executed, for the next process to go on with."""
        self.host.drain()

    async def settled(self) -> None:
        """Wait until no run is being executed."""
        await self.host.settled()

    async def figures(self) -> Iterable[Figure]:
        """Give the figures that operators see."""
        host, known = self.host, await self.index.statuses()
        runs = {status.value: known.get(status.value, 0) for status in Status}
        return [
            figures_by("status", "runs", "gauge", "Runs in the log.", runs),
            figure("executions", "gauge", "Runs being executed.", host.running),
            figure("runs_waiting", "gauge", "Runs that wait for their turn.", host.waiting),
            figure("actors_live", "gauge", "Actors in memory.", host.runs.live),
            figure("actors_started", "counter", "Actors that came to life.", host.runs.started),
            figure("actor_crashes", "counter", "Actors that crashed.", host.runs.crashed),
        ]

    def capabilities(self) -> Mapping[str, Any]:
        """Give the limits that clients want to know."""
        limits, blobs = self.host.limits, self.host.blobs.limits
        return {
            "limits": {
                "runs": limits.runs,
                "timeout": limits.timeout,
                "inline_bytes": limits.inline_limit,
                "blob_bytes": blobs.quota,
                "scope_blob_bytes": blobs.scope_quota,
                "uploads": MAX_UPLOADS,
            },
            "rates": {
                "progress": WINDOW / _NANOSECONDS,
                "progress_items": PROGRESS_ITEMS / _NANOSECONDS,
            },
            "windows": {
                "idempotency": self.runs.claim_window / _NANOSECONDS,
                "sync_wait": limits.sync_wait,
                "cancel_grace": limits.cancel_grace,
                "upload": self.uploads.upload_life / _NANOSECONDS,
                "blob_grace": blobs.grace,
            },
            "statuses": list(get_args(RunStatus)),
            "export_types": list(EXPORT_FIELDS),
            "trigger": self._trigger,
        }


def runs_of(node: Node) -> RunsPart:
    """Give the runs at work in a node."""
    return node.part(RunsPart)


async def _take_up(
    host: Host, index: RunIndex, listing: LiveListing, resources: RunResources, upto: Mark
) -> None:
    """Take up the runs that an earlier process left, or only some of them."""

    async def open_runs(after: int) -> Sequence[Listed]:
        while True:
            await listing.reach(upto)
            try:
                return await index.open_runs(after, upto)
            except OperationError:  # what was reached is being built anew, or takes long
                await host.env.sleep(LOOK_AGAIN)

    if resources.only is None:
        await recover(host, open_runs, upto)
    for run_id in resources.only or ():
        await take_up(host, run_id)


@asynccontextmanager
async def open_runs(
    log: EventLog, listing: LiveListing, resources: RunResources, stopping: trio.Event
) -> AsyncIterator[RunsPart]:
    """Take up the runs that an earlier process left, and execute runs for the length of a block."""
    limits = resources.limits or HostLimits()
    host = Host(
        log.env,
        log,
        resources.plugins,
        limits=limits,
        blobs=resources.blobs,
        secrets=resources.secrets,
        processes=Pool(log.env, grace=limits.cancel_grace),
    )
    index = RunIndex(listing)
    async with trio.open_nursery() as nursery:
        await host.blobs.clean_up()
        # before a new run seals something
        await unless_stopped(partial(drop_old_seals, host), stopping)
        await nursery.start(host.run)
        taken_up, upto = trio.Event(), await log.head()

        async def take_up_all() -> None:
            with suppress(StoppedOpening):  # the rest is for the next process
                await unless_stopped(
                    partial(_take_up, host, index, listing, resources, upto), stopping
                )
            taken_up.set()

        nursery.start_soon(take_up_all)
        with trio.move_on_after(OPENING):  # if the index is being built, it goes on meanwhile
            await taken_up.wait()
        if stopping.is_set():
            host.drain()  # or the stop would count as a crash of the runs that were resumed
            with trio.move_on_after(limits.cancel_grace):
                await host.settled()
            raise StoppedOpening
        part = RunsPart(host, index, resources)
        nursery.start_soon(part.uploads.run)
        yield part
        nursery.cancel_scope.cancel()
