"""A node on the log of a data directory, in this process, as the settings say."""

from __future__ import annotations

from contextlib import asynccontextmanager, closing
from functools import partial
from typing import TYPE_CHECKING

from perdure.eventlog.env import RealEnv
from perdure.eventlog.log import open_log
from perdure.eventlog.snapshots import SnapshotFile
from perdure.eventlog.sqlite import SqliteStore
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.node import open_node
from perdure.runtime.kernel.witness import witness_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from perdure.runtime.kernel.features import Features
    from perdure.runtime.kernel.node import Node
    from perdure.runtime.kernel.opening import StartUp
    from perdure.runtime.kernel.settings import Settings


@asynccontextmanager
async def open_local_node(
    settings: Settings, features: Features, *, start_up: StartUp | None = None
) -> AsyncIterator[Node]:
    """Be the writer of the log for the length of a block; ``start_up`` is that of open_node."""
    data, env = DataDir.of(settings), RealEnv()
    data.make()
    with (
        closing(SqliteStore.open(data.log, env=env, witness=partial(witness_of, data))) as store,
        closing(SnapshotFile(data.snapshots)) as snapshots,
    ):
        async with (
            open_log(env, store, snapshots=snapshots) as log,
            open_node(log, features, settings=settings, data=data, start_up=start_up) as node,
        ):
            await log.writer.check_room()  # all files that need the reserve are open
            yield node
