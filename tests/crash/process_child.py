"""A server whose entries run in processes with children of their own, for tests that kill them.

ACK 0192...      the run with this id was accepted
DONE             every run has ended (with --finish)
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import trio

from eventlog import RealEnv, SqliteStore, open_log
from perdure import SyncRunContext, entry, plugin
from runtime.blobs.file_depot import FileDepot
from runtime.blobs.store import BlobStore
from runtime.execution.limits import HostLimits
from runtime.lists.directory import Directory
from runtime.node import Node, open_node
from runtime.operations.principal import LOCAL
from runtime.operations.requests import CreateRun
from runtime.plugins.plugin import declared
from tests.crash.soundness import LOG_NAME
from tests.crash.writing_child import end_with_standard_input

IN_FLIGHT: Final = 3
MARK: Final = "perdure-test-grandchild"


def pieces(line: str) -> Iterator[bytes]:
    """Give bytes that no other run has, in several pieces, and take a while."""
    for _ in range(10):
        yield line.encode() * 1000
        time.sleep(0.005)


@plugin("crash")
class Crashing:
    """What is executed while processes are killed."""

    @entry
    def family(self, ctx: SyncRunContext) -> str:
        """Start processes in and out of the group, and work a while in steps."""
        nap = [sys.executable, "-S", "-c", "import time; time.sleep(3000)", MARK]
        subprocess.Popen(nap)
        subprocess.Popen(nap, start_new_session=True)
        for number in range(3):
            ctx.run.step(f"step-{number}", time.sleep, 0.05)
            ctx.run.export_bytes(pieces(f"{ctx.run.id} {number}\n"))
        return "done"


async def create_for_ever(node: Node) -> None:
    """Create one run after the other."""
    request = CreateRun(plugin_id="crash", entry_id="family", args={})
    while True:
        run_id = (await node.runs.create(LOCAL, request))["run"]["run_id"]
        os.write(1, f"ACK {run_id}\n".encode())
        await node.host.end_of(run_id)


async def serve(directory: Path, *, finish: bool) -> None:
    """Take up what is open; then create more, or wait for the end of all."""
    env = RealEnv()
    with (
        closing(SqliteStore.open(directory / LOG_NAME, env=env)) as store,
        closing(Directory(directory / "runs.db")) as runs,
    ):
        async with (
            open_log(env, store) as log,
            open_node(
                log,
                {"crash": declared(Crashing)},
                runs,
                limits=HostLimits(runs=IN_FLIGHT, cancel_grace=0.2),
                blobs=BlobStore(env, FileDepot(directory)),
            ) as node,
            trio.open_nursery() as nursery,
        ):
            if not finish:
                for _ in range(IN_FLIGHT):
                    nursery.start_soon(create_for_ever, node)
                await trio.sleep_forever()
            await node.host.settled()
            os.write(1, b"DONE\n")


def main() -> None:
    """Serve the directory that is named."""
    directory = Path(sys.argv[1])
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    trio.run(lambda: serve(directory, finish="--finish" in sys.argv))


if __name__ == "__main__":
    main()
