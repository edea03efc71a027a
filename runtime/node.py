"""A node: one process at work on one log, with everything that answers for it.

    async with open_node(log, plugins, Directory(path)) as node:
        await node.operations.call(LOCAL, "runs.create", {...})

Leaving the block ends the process's work as a crash would: the next node goes on from the log. To
let go of runs in good order, drain the host before.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from runtime.bulk import RATE, Bulk
from runtime.catalogue import Catalogue
from runtime.channels import Channels
from runtime.claims import CLAIM_WINDOW
from runtime.host import Host
from runtime.operations import Operations, operations_of
from runtime.plugins import Plugins
from runtime.recovery import drop_old_seals, recover, take_up
from runtime.references import References
from runtime.runs import Runs
from runtime.uploads import Blobs
from runtime.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping

    from eventlog.log import EventLog
    from runtime.blobs import BlobStore
    from runtime.directory import Directory
    from runtime.limits import HostLimits
    from runtime.plugin import Plugin
    from runtime.secrets import Secrets

OPERATIONS = operations_of(Runs, Bulk, Plugins, Channels, Blobs)


@dataclass(frozen=True, slots=True)
class Node:
    """What a process consists of."""

    host: Host
    catalogue: Catalogue
    runs: Runs
    channels: Channels
    blobs: Blobs
    operations: Operations


@asynccontextmanager
async def open_node(  # noqa: PLR0913 - a node has many parts
    log: EventLog,
    plugins: Mapping[str, Plugin],
    directory: Directory,
    *,
    limits: HostLimits | None = None,
    claim_window: int = CLAIM_WINDOW,
    only: Collection[str] | None = None,
    blobs: BlobStore | None = None,
    references: References | None = None,
    secrets: Secrets | None = None,
    bulk_rate: float = RATE,
) -> AsyncIterator[Node]:
    """Take up what an earlier process left, and work for the length of a block.

    A process that is there for some runs only names those that it takes up; what else has not
    ended is left as it is, for a process that serves the log. Blobs, and references to them, are
    kept in memory unless stated.
    """
    async with trio.open_nursery() as nursery:
        host = Host(log.env, log, plugins, limits=limits, blobs=blobs, secrets=secrets)
        await host.blobs.clean_up()
        await nursery.start(host.run)
        if log.env.faults is None:  # in a simulation nothing blocks
            nursery.start_soon(Watchdog(log.env).run)
        catalogue = Catalogue(log, directory)
        await nursery.start(catalogue.run)
        if only is None:
            await recover(host, catalogue.open_runs)
        else:
            await drop_old_seals(host)
            for run_id in only:
                await take_up(host, run_id)
        runs = Runs(host, catalogue, claim_window=claim_window)
        channels = Channels(host, catalogue)
        service = Blobs(host, references or References())
        nursery.start_soon(service.run)
        bulk = Bulk(host, catalogue, runs.creation, rate=bulk_rate)
        operations = Operations(runs, bulk, Plugins(host), channels, service)
        yield Node(host, catalogue, runs, channels, service, operations)
        nursery.cancel_scope.cancel()
