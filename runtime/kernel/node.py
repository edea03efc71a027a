"""A node: one process at work on one log, with everything that answers for it.

    async with open_node(log, plugins, Directory(path)) as node:
        await node.operations.call(LOCAL, "runs.create", {...})

Leaving the block ends the process's work as a crash would: the next node goes on from the log. To
let go of runs in good order, drain the host before.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from outcome import Error, Value

from perdure.eventlog.log import open_log
from perdure.eventlog.memory import MemoryStore
from perdure.runtime.blobs.references import References
from perdure.runtime.execution.host import Host
from perdure.runtime.execution.recovery import drop_old_seals, recover, take_up
from perdure.runtime.kernel.channels import Channels
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.operations import Operations, operations_of
from perdure.runtime.runs.bulk import RATE, Bulk
from perdure.runtime.runs.claims import CLAIM_WINDOW
from perdure.runtime.runs.index import Directory
from perdure.runtime.runs.live_index import Catalogue
from perdure.runtime.runs.operations import Runs
from perdure.runtime.runs.plugin_list import Plugins
from perdure.runtime.runs.trigger import Trigger
from perdure.runtime.runs.uploads import Blobs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping

    from outcome import Outcome

    from perdure.eventlog.log import EventLog
    from perdure.runtime.blobs.store import BlobStore
    from perdure.runtime.execution.limits import HostLimits
    from perdure.runtime.kernel.principal import Principal
    from perdure.runtime.kernel.settings import TriggerMode
    from perdure.runtime.plugins.plugin import Plugin
    from perdure.runtime.runs.answers import RunAnswer
    from perdure.runtime.runs.requests import CreateRun
    from perdure.runtime.secrets.secrets import Secrets

OPERATIONS = operations_of(Runs, Bulk, Plugins, Channels, Blobs, Trigger)

MOST_APART: Final = 32  # entries that are executed apart at once, if that is how they are triggered


class StoppedOpening(Exception):
    """The node was told to stop while it opened; it has drained the runs it had resumed."""


@dataclass(frozen=True, slots=True)
class Node:
    """What a process consists of."""

    host: Host
    catalogue: Catalogue
    runs: Runs
    channels: Channels
    blobs: Blobs
    operations: Operations
    leaving: trio.Event = field(default_factory=trio.Event)  # set when followers are to go


@asynccontextmanager
async def open_node(  # noqa: PLR0913 - a node has many parts
    log: EventLog,
    plugins: Mapping[str, Plugin],
    directory: Directory,
    *,
    limits: HostLimits | None = None,
    claim_window: int = CLAIM_WINDOW,
    only: Collection[str] | None = None,
    stopping: trio.Event | None = None,
    blobs: BlobStore | None = None,
    references: References | None = None,
    secrets: Secrets | None = None,
    bulk_rate: float = RATE,
    trigger: TriggerMode = "runs",
) -> AsyncIterator[Node]:
    """Take up what an earlier process left, and work for the length of a block.

    A process that is there for some runs only names those that it takes up; what else has not
    ended is left as it is, for a process that serves the log. Blobs, and references to them, are
    kept in memory unless stated.

    If ``stopping`` is set before the node is open, the runs it has taken up are drained, so that
    the stop does not count as a crash, and StoppedOpening is raised.
    """
    async with trio.open_nursery() as nursery:
        host = Host(log.env, log, plugins, limits=limits, blobs=blobs, secrets=secrets)
        await host.blobs.clean_up()
        await nursery.start(host.run)
        catalogue = Catalogue(log, directory)
        opening = partial(_take_up_runs, nursery, host, catalogue, only)
        if stopping is None:
            await opening()
        elif await _is_stopped(opening, stopping):
            host.drain()
            with trio.move_on_after(host.limits.cancel_grace):
                await host.settled()
            raise StoppedOpening
        runs = Runs(host, catalogue, claim_window=claim_window)
        channels = Channels(host, catalogue)
        service = Blobs(host, references or References())
        nursery.start_soon(service.run)
        bulk = Bulk(host, catalogue, runs.creation, rate=bulk_rate)
        services: list[object] = [runs, bulk, Plugins(host), channels, service]
        if trigger == "runs":
            services.append(Trigger(runs.create))
        elif trigger == "direct":
            services.append(Trigger(_Apart(host).create, recorded=False))
        operations = Operations(*services)
        yield Node(host, catalogue, runs, channels, service, operations)
        log.writer.give_up_when_stalled()
        nursery.cancel_scope.cancel()


async def _take_up_runs(
    nursery: trio.Nursery, host: Host, catalogue: Catalogue, only: Collection[str] | None
) -> None:
    await nursery.start(catalogue.run)
    if only is None:
        await recover(host, catalogue.open_runs)
    else:
        await drop_old_seals(host)
        for run_id in only:
            await take_up(host, run_id)


async def _is_stopped(work: Callable[[], Awaitable[None]], stopping: trio.Event) -> bool:
    """Do some work until it is done or ``stopping`` is set; tell whether it was stopped."""
    async with trio.open_nursery() as nursery:

        async def stop() -> None:
            await stopping.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(stop)
        await work()
        nursery.cancel_scope.cancel()
    return stopping.is_set()


class _Apart:
    """Executes runs on nodes of their own, which are thrown away with all they know."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._nodes = 0

    async def create(self, principal: Principal, request: CreateRun) -> RunAnswer:
        """Execute one run; what has not ended after the wait is ended with its node."""
        if self._nodes >= MOST_APART:
            raise OperationError("OVERLOADED", "too many entries run apart; try again later")
        self._nodes += 1
        try:
            return (await self._execute(principal, request)).unwrap()
        finally:
            self._nodes -= 1

    async def _execute(self, principal: Principal, request: CreateRun) -> Outcome[RunAnswer]:
        host = self._host
        with closing(Directory(":memory:")) as directory:
            async with (
                open_log(host.env, MemoryStore()) as log,
                open_node(
                    log,
                    host.plugins,
                    directory,
                    limits=host.limits,
                    secrets=host.secrets.apart(),
                    trigger="off",
                ) as node,
            ):
                try:
                    return Value(await node.runs.create(principal, request))
                except Exception as error:  # noqa: BLE001 - raised outside of the nurseries
                    return Error(error)
