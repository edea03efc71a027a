"""The frame of programs that execute runs until they are killed, and say which they accepted.

ACK 0192...      the run with this id was accepted
DONE             every run has ended (with --finish)
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import trio

from perdure.eventlog import RealEnv, SqliteStore, open_log
from perdure.runtime.blobs.file_depot import FileDepot
from perdure.runtime.blobs.store import BlobStore
from perdure.runtime.execution.limits import HostLimits
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.node import Node
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.feature import open_run_node
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CreateRun
from tests.crash.soundness import LOG_NAME
from tests.crash.writing_child import end_with_standard_input


async def create_for_ever(node: Node, entry_id: str) -> None:
    """Create one run after the other."""
    request = CreateRun(plugin_id="crash", entry_id=entry_id, args={})
    while True:
        run_id = (await runs_of(node).runs.create(LOCAL, request))["run"]["run_id"]
        os.write(1, f"ACK {run_id}\n".encode())
        await runs_of(node).executor.end_of(run_id)


async def serve(
    directory: Path, plugin: type, entries: Sequence[str], limits: HostLimits, *, finish: bool
) -> None:
    """Take up what is open; then create more of each entry, or wait for the end of all."""
    env = RealEnv()
    with closing(SqliteStore.open(directory / LOG_NAME, env=env)) as store:
        async with (
            open_log(env, store) as log,
            open_run_node(
                log,
                {"crash": declared(plugin)},
                data=DataDir(directory),
                limits=limits,
                blobs=BlobStore(env, FileDepot(directory)),
            ) as node,
            trio.open_nursery() as nursery,
        ):
            if not finish:
                for entry_id in entries:
                    nursery.start_soon(create_for_ever, node, entry_id)
                await trio.sleep_forever()
            await runs_of(node).executor.settled()
            os.write(1, b"DONE\n")


def main(plugin: type, entries: Sequence[str], limits: HostLimits | None = None) -> None:
    """Serve the directory that is named, with a run of each entry in flight."""
    directory, finish = Path(sys.argv[1]), "--finish" in sys.argv
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    trio.run(lambda: serve(directory, plugin, entries, limits or HostLimits(), finish=finish))
