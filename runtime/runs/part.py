"""Runs at work in a node: the executor, and the services that are asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import trio

from perdure.actors.run.outbox import PROGRESS_ITEMS
from perdure.actors.run.output import EXPORT_FIELDS
from perdure.actors.run.reports import WINDOW
from perdure.actors.run.status import Status
from perdure.eventlog.units import NANOSECONDS
from perdure.runtime.blobs.references import References
from perdure.runtime.blobs.store import BlobStore
from perdure.runtime.execution.executor import Executor
from perdure.runtime.execution.host_context import host_context
from perdure.runtime.execution.limits import HostLimits
from perdure.runtime.execution.recovery import drop_old_seals, recover, take_up
from perdure.runtime.kernel.claims import CLAIM_WINDOW
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.feature import Part
from perdure.runtime.kernel.figures import figure, figures_by
from perdure.runtime.kernel.opening import StoppedOpening
from perdure.runtime.plugins.plugin import Plugin
from perdure.runtime.process.pool import Pool
from perdure.runtime.process.sandbox import Sandbox
from perdure.runtime.runs.bulk import RATE, Bulk
from perdure.runtime.runs.cancellation import Cancellation
from perdure.runtime.runs.creation import Creation
from perdure.runtime.runs.direct_runs import DirectRuns
from perdure.runtime.runs.index import RunIndex
from perdure.runtime.runs.operations import Runs
from perdure.runtime.runs.plugin_list import PluginList
from perdure.runtime.runs.reader import RunReader
from perdure.runtime.runs.requests import RunStatus, Way
from perdure.runtime.runs.settings import TriggerMode, UnknownEntries
from perdure.runtime.runs.trigger import Begin, Trigger
from perdure.runtime.runs.upload_slots import MAX_UPLOADS, MAX_UPLOADS_OF_ONE
from perdure.runtime.runs.uploads import Uploads
from perdure.runtime.secrets.secrets import Secrets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from perdure.eventlog.log import EventLog
    from perdure.eventlog.record import Mark
    from perdure.runtime.kernel.figures import Figure
    from perdure.runtime.kernel.live_listing import LiveListing
    from perdure.runtime.kernel.node import Node
    from perdure.runtime.kernel.opening import StartUp
    from perdure.runtime.runs.index import Listed

Result = TypeVar("Result")
OPENING: Final = 2.0  # seconds after which a node is open while it still takes up runs
LOOK_AGAIN: Final = 1.0  # seconds between two questions for the runs that have not ended


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
    sandbox: Sandbox | None = None
    trigger_choice: bool = False
    unknown_entries: UnknownEntries = "refuse"


class RunsPart(Part):
    """Runs at work in a node."""

    def __init__(self, executor: Executor, index: RunIndex, resources: RunResources) -> None:
        """Offer the operations on runs."""
        context = executor.context
        self.executor = executor
        self.index = index
        self.reader = reader = RunReader(context.log, executor.runs)
        self._claim_window = resources.claim_window
        self._trigger = resources.trigger
        self._trigger_choice = resources.trigger_choice
        creation = Creation(
            executor,
            claim_window=resources.claim_window,
            unknown_entries=resources.unknown_entries,
            take_up=None if resources.only is None else partial(take_up, executor),
        )
        cancellation = Cancellation(executor)
        self.runs = Runs(executor, index, reader, creation, cancellation)
        self.uploads = Uploads(
            context, reader, resources.references or References(), executor.end_of
        )
        bulk = Bulk(context, index, reader, creation, cancellation, rate=resources.bulk_rate)
        entries = context.entries
        plugins = PluginList(context.log, lambda: (entries.plugins, entries.problems))
        services = [self.runs, bulk, plugins, self.uploads]
        if self._trigger != "off":
            direct = DirectRuns(context, resources.unknown_entries)
            ways: dict[Way, Begin] = {"runs": self.runs.outcome, "direct": direct.outcome}
            choice = resources.trigger_choice
            services.append(Trigger(ways, self._trigger, callers_choose=choice))
        self.services = services

    @property
    def busy(self) -> int:
        """How many runs are being executed."""
        return self.executor.running

    @property
    def waiting(self) -> int:
        """How many runs wait for their turn."""
        return self.executor.waiting

    def close(self) -> None:
        """Take no new runs and start none that wait."""
        self.executor.close()

    async def at_rest(self, until: int) -> None:
        """Wait until no run is executed but those that only wait, and still will at an instant."""
        await self.executor.at_rest(until)

    def drain(self) -> None:
        """Let go of the runs that are being executed, for the next process to go on with."""
        self.executor.drain()

    async def settled(self) -> None:
        """Wait until no run is being executed."""
        await self.executor.settled()

    async def figures(self) -> Iterable[Figure]:
        """Give the figures that operators see."""
        executor, known = self.executor, await self.index.statuses()
        runs = {status.value: known.get(status.value, 0) for status in Status}
        return [
            figures_by("status", "runs", "gauge", "Runs in the log.", runs),
            figure("executions", "gauge", "Runs being executed.", executor.running),
            figure("runs_waiting", "gauge", "Runs that wait for their turn.", executor.waiting),
            figure("actors_live", "gauge", "Actors in memory.", executor.runs.live),
            figure("actors_started", "counter", "Actors that came to life.", executor.runs.started),
            figure("actor_crashes", "counter", "Actors that crashed.", executor.runs.crashed),
        ]

    def capabilities(self) -> Mapping[str, Any]:
        """Give the limits that clients want to know."""
        limits, blobs = self.executor.context.limits, self.executor.context.blobs.limits
        return {
            "limits": {
                "runs": limits.runs,
                "timeout": limits.timeout,
                "inline_bytes": limits.inline_limit,
                "blob_bytes": blobs.quota,
                "scope_blob_bytes": blobs.scope_quota,
                "uploads": MAX_UPLOADS,
                "uploads_of_one": MAX_UPLOADS_OF_ONE,
            },
            "rates": {
                "progress": WINDOW / NANOSECONDS,
                "progress_items": PROGRESS_ITEMS / NANOSECONDS,
            },
            "windows": {
                "idempotency": self._claim_window / NANOSECONDS,
                "sync_wait": limits.sync_wait,
                "cancel_grace": limits.cancel_grace,
                "upload": self.uploads.slots.life / NANOSECONDS,
                "blob_grace": blobs.grace,
            },
            "statuses": list(get_args(RunStatus)),
            "export_types": list(EXPORT_FIELDS),
            "trigger": self._trigger,
            "trigger_choice": self._trigger_choice,
        }


def runs_of(node: Node) -> RunsPart:
    """Give the runs at work in a node."""
    return node.part(RunsPart)


@dataclass(slots=True)
class _Count:
    """How many runs were taken up, of how many."""

    done: int = 0
    of: int = 0

    def add(self, runs: int) -> None:
        """Count some more."""
        self.done += runs


async def _take_up(
    executor: Executor,
    index: RunIndex,
    listing: LiveListing,
    resources: RunResources,
    upto: Mark,
    start_up: StartUp,
) -> None:
    """Take up the runs that an earlier process left, or only some of them."""

    async def asked(question: Callable[[], Awaitable[Result]]) -> Result:
        while True:
            await listing.reach(upto)
            try:
                return await question()
            except OperationError:  # what was reached is being built anew, or takes long
                await executor.context.env.sleep(LOOK_AGAIN)

    def open_runs(after: int) -> Awaitable[Sequence[Listed]]:
        return asked(partial(index.open_runs, after, upto))

    if resources.only is None:
        known, count = await asked(index.statuses), _Count()
        count.of = sum(known.get(status.value, 0) for status in Status if not status.is_terminal)
        start_up.watch("runs taken up", lambda: (count.done, count.of))
        await recover(executor, open_runs, upto, count.add)
        count.of = count.done  # some may have ended meanwhile
    for run_id in resources.only or ():
        await take_up(executor, run_id)


@asynccontextmanager
async def open_runs(
    log: EventLog, listing: LiveListing, resources: RunResources, start_up: StartUp
) -> AsyncIterator[RunsPart]:
    """Take up the runs that an earlier process left, and execute runs for the length of a block."""
    context = host_context(
        log,
        resources.plugins,
        limits=resources.limits,
        blobs=resources.blobs,
        secrets=resources.secrets,
    )
    executor = Executor(context, processes=Pool(log.env, resources.sandbox))
    index = RunIndex(listing)
    async with trio.open_nursery() as nursery:
        await context.blobs.clean_up()
        # before a new run seals something
        await start_up.unless_stopped(partial(drop_old_seals, executor))
        await nursery.start(executor.run)
        taken_up, upto = trio.Event(), await log.head()

        async def take_up_all() -> None:
            with suppress(StoppedOpening):  # the rest is for the next process
                await start_up.unless_stopped(
                    partial(_take_up, executor, index, listing, resources, upto, start_up)
                )
            taken_up.set()

        nursery.start_soon(take_up_all)
        with trio.move_on_after(OPENING):  # if the index is being built, it goes on meanwhile
            await taken_up.wait()
        if start_up.stopping.is_set():
            executor.drain()  # or the stop would count as a crash of the runs that were resumed
            with trio.move_on_after(context.limits.cancel_grace):
                await executor.settled()
            raise StoppedOpening
        part = RunsPart(executor, index, resources)
        nursery.start_soon(part.uploads.run)
        yield part
        nursery.cancel_scope.cancel()
