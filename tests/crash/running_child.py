"""A program that executes runs, says which it has accepted, and counts step bodies in a file.

ACK 0192...      the run with this id was accepted
DONE             every run has ended (with --finish)
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Final

import trio

from eventlog import RealEnv, SqliteStore, open_log
from perdure import RunContext, entry, plugin
from runtime.lists.directory import Directory
from runtime.node import Node, open_node
from runtime.operations.principal import LOCAL
from runtime.operations.requests import CreateRun
from runtime.plugins.plugin import declared
from tests.crash.soundness import LOG_NAME
from tests.crash.writing_child import end_with_standard_input

IN_FLIGHT: Final = 200
STEPS: Final = 3
BODIES: Final = "bodies"  # "life run step" for each body of a step that was begun


@plugin("crash")
class Crashing:
    """What is executed while the process is killed."""

    @cached_property
    def _bodies(self) -> int:
        """Where to count, outside of the log: in the directory of this life."""
        return os.open(BODIES, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @entry
    async def steps(self, ctx: RunContext) -> str:
        """Do steps, with an export after each."""
        for number in range(STEPS):

            async def body(number: int = number) -> int:
                os.write(self._bodies, f"{os.getpid()} {ctx.run.id} {number}\n".encode())
                await trio.sleep(0.02)
                return number

            await ctx.run.step(f"step-{number}", body)
            await ctx.run.export_text("did a step")
        return "done"

    @entry
    async def plain(self, ctx: RunContext) -> None:
        """Export without any step."""
        for number in range(STEPS):
            await ctx.run.export_text(f"plain {number % 2}")
            await trio.sleep(0.02)


async def create_for_ever(node: Node, number: int) -> None:
    """Create one run after the other."""
    request = CreateRun(plugin_id="crash", entry_id=("steps", "plain")[number % 2], args={})
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
            open_node(log, {"crash": declared(Crashing)}, runs) as node,
            trio.open_nursery() as nursery,
        ):
            if not finish:
                for number in range(IN_FLIGHT):
                    nursery.start_soon(create_for_ever, node, number)
                await trio.sleep_forever()
            await node.host.settled()
            os.write(1, b"DONE\n")


def main() -> None:
    """Serve the directory that is named."""
    directory = Path(sys.argv[1])
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    os.chdir(directory)
    trio.run(lambda: serve(directory, finish="--finish" in sys.argv))


if __name__ == "__main__":
    main()
