"""A node on the log of a data directory, in this process, as the settings say."""

from __future__ import annotations

import os
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from perdure.eventlog.env import RealEnv
from perdure.eventlog.log import open_log
from perdure.eventlog.snapshots import SnapshotFile
from perdure.eventlog.sqlite import SqliteStore
from perdure.runtime.blobs.file_depot import FileDepot
from perdure.runtime.blobs.references import References
from perdure.runtime.blobs.store import BlobLimits, BlobStore
from perdure.runtime.execution.limits import HostLimits
from perdure.runtime.execution.watchdog import Watchdog
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.node import open_node
from perdure.runtime.plugins.reloader import Reloader
from perdure.runtime.runs.index import Directory
from perdure.runtime.secrets.secrets import open_secrets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    import trio

    from perdure.runtime.kernel.node import Node
    from perdure.runtime.kernel.settings import Settings
    from perdure.runtime.plugins.loading import Loaded

_NANOSECONDS: Final = 1_000_000_000


@asynccontextmanager
async def open_local_node(
    settings: Settings,
    loaded: Loaded,
    *,
    only: Collection[str] | None = None,
    stopping: trio.Event | None = None,
) -> AsyncIterator[Node]:
    """Be the writer of the log for the length of a block.

    ``only`` and ``stopping`` are those of ``open_node``.

    If the settings say so, plugins are loaded anew meanwhile when their files change.
    """
    data, env = DataDir.of(settings), RealEnv()
    data.make()
    depot = FileDepot(data.log.parent)
    with (
        ExitStack() as stack,
        closing(SqliteStore.open(data.log, env=env)) as store,
        closing(SnapshotFile(data.snapshots)) as snapshots,
        closing(Directory(data.directory)) as directory,
        closing(References(data.references)) as references,
    ):
        reloader = None
        if settings.reload and loaded.outcomes:
            copies = stack.enter_context(TemporaryDirectory(prefix="perdure-"))
            reloader = Reloader(settings, loaded, Path(copies))
            loaded = reloader.loaded
        async with (
            open_log(env, store, snapshots=snapshots) as log,
            open_node(
                log,
                loaded.plugins,
                directory,
                limits=limits_of(settings),
                claim_window=round(settings.idempotency_window * _NANOSECONDS),
                only=only,
                stopping=stopping,
                blobs=BlobStore(env, depot, limits=blob_limits_of(settings)),
                references=references,
                secrets=open_secrets(env, data.path, os.environ, granted=settings.granted_secrets),
                bulk_rate=settings.bulk_rate,
                trigger=settings.trigger,
            ) as node,
        ):
            node.host.entries.problems = loaded.problems
            node.host.start(Watchdog(env).run)
            if reloader is not None:
                node.host.start(partial(reloader.run, node.host))
            yield node


def limits_of(settings: Settings) -> HostLimits:
    """Give the limits of a host that the settings state."""
    return HostLimits(
        runs=settings.runs,
        cancel_grace=settings.cancel_grace,
        sync_wait=settings.sync_wait,
        timeout=settings.timeout,
        progress_items=settings.progress_items,
        inline_limit=settings.inline_limit,
    )


def blob_limits_of(settings: Settings) -> BlobLimits:
    """Give the limits of blobs that the settings state."""
    return BlobLimits(
        quota=settings.blob_quota,
        scope_quota=settings.blob_scope_quota,
        grace=settings.blob_grace,
    )
