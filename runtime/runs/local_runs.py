"""Runs at work on a data directory, as the settings say."""

from __future__ import annotations

import os
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from perdure.eventlog.units import NANOSECONDS
from perdure.runtime.blobs.file_depot import FileDepot
from perdure.runtime.blobs.references import References
from perdure.runtime.blobs.store import BlobLimits, BlobStore
from perdure.runtime.execution.limits import HostLimits
from perdure.runtime.execution.watchdog import Watchdog
from perdure.runtime.plugins.loading import load_plugins
from perdure.runtime.plugins.plugin import programs_of
from perdure.runtime.plugins.reloader import Reloader
from perdure.runtime.process.sandbox import Sandbox
from perdure.runtime.runs.part import RunResources, open_runs
from perdure.runtime.runs.settings import RunSettings
from perdure.runtime.secrets.printed_output import output_of_runs
from perdure.runtime.secrets.secrets import open_secrets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from perdure.runtime.kernel.live_listing import LiveListing
    from perdure.runtime.kernel.node import Foundation
    from perdure.runtime.plugins.loading import LoadedPlugins
    from perdure.runtime.runs.part import RunsPart


@asynccontextmanager
async def open_local_runs(
    foundation: Foundation,
    listing: LiveListing,
    loaded: LoadedPlugins | None,
    only: Collection[str] | None,
) -> AsyncIterator[RunsPart]:
    """Execute runs of a data directory, or in memory if there is none.

    If the settings say so, plugins are loaded anew meanwhile when their files change.
    """
    env, data = foundation.env, foundation.data
    settings = foundation.settings.of(RunSettings)
    with ExitStack() as stack:
        stack.enter_context(output_of_runs())  # before plugins are imported, which may keep streams
        if loaded is None:
            loaded = load_plugins(settings)
        reloader = None
        if settings.reload and loaded.outcomes:
            copies = stack.enter_context(TemporaryDirectory(prefix="perdure-"))
            reloader = Reloader(settings, loaded, Path(copies))
            loaded = reloader.loaded
        depot = references = secrets = None
        hidden = () if data is None else (data.path, data.log.parent)
        sandbox = Sandbox(settings.sandbox, hidden=hidden)
        if data is not None:
            depot = FileDepot(data.log.parent)
            references = stack.enter_context(closing(References(data.references)))
            secrets = open_secrets(env, data.path, os.environ, granted=settings.granted_secrets)
        resources = RunResources(
            plugins=loaded.plugins,
            limits=host_limits(settings),
            claim_window=round(settings.idempotency_window * NANOSECONDS),
            only=only,
            blobs=BlobStore(env, depot, limits=blob_limits(settings)),
            references=references,
            secrets=secrets,
            bulk_rate=settings.bulk_rate,
            trigger=settings.trigger,
            sandbox=sandbox,
            trigger_choice=settings.trigger_choice,
            unknown_entries=settings.unknown_entries,
        )
        async with open_runs(foundation.log, listing, resources, foundation.start_up) as part:
            part.executor.context.entries.problems = loaded.problems
            part.executor.start(Watchdog(env).run)
            if programs_of(loaded.plugins):
                part.executor.start(partial(sandbox.announce, env))
            if reloader is not None:
                part.executor.start(partial(reloader.run, env, part.executor.load))
            yield part


def host_limits(settings: RunSettings) -> HostLimits:
    """Give the limits of a host that the settings state."""
    return HostLimits(
        runs=settings.runs,
        cancel_grace=settings.cancel_grace,
        sync_wait=settings.sync_wait,
        timeout=settings.timeout,
        progress_items=settings.progress_items,
        inline_limit=settings.inline_limit,
    )


def blob_limits(settings: RunSettings) -> BlobLimits:
    """Give the limits of blobs that the settings state."""
    return BlobLimits(
        quota=settings.blob_quota,
        scope_quota=settings.blob_scope_quota,
        grace=settings.blob_grace,
    )
