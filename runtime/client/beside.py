"""Following a log that another process writes: its file is looked at for new records."""

from __future__ import annotations

from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

from perdure.eventlog.env import RealEnv
from perdure.eventlog.log import open_log
from perdure.runtime.client.local import Beside
from perdure.runtime.kernel.channels import Channels
from perdure.runtime.kernel.log_reader import LogReader, open_files
from perdure.runtime.kernel.node import parts_by_channel
from perdure.runtime.kernel.operations import Operations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from perdure.runtime.kernel.data_directory import DataDir
    from perdure.runtime.kernel.features import Features
    from perdure.runtime.kernel.settings import Settings


@asynccontextmanager
async def open_beside(
    data: DataDir, features: Features, settings: Settings | None = None
) -> AsyncIterator[Beside]:
    """Read and follow a log for the length of a block, in an event loop. Nothing is written."""
    with open_files(data) as (store, snapshots):
        async with open_log(RealEnv(), store, snapshots=snapshots) as log:
            with closing(LogReader(log, data, features, settings)) as reader:
                parts = parts_by_channel(features, reader.parts)
                services = [*reader.services, Channels(log, features.channels, parts)]
                yield Beside(Operations(features.operations, services), features, data)
