"""A server with a stubborn process, for tests that kill it."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import trio

from perdure.eventlog import RealEnv, SqliteStore, open_log
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.feature import open_run_node
from tests.runtime.process.hostile_plugin import Hostile

NAMESPACE = Path("/proc/self/ns/pid")


async def main(path: Path, entry_id: str) -> None:
    """Start the entry, tell its run once it is deaf, and wait for the end."""
    env = RealEnv()
    with closing(SqliteStore.open(path, env=env)) as store:
        async with (
            open_log(env, store) as log,
            open_run_node(log, {"hostile": declared(Hostile)}) as node,
        ):
            args = {"namespace": str(NAMESPACE.readlink())} if entry_id == "alone" else {}
            request = {"plugin_id": "hostile", "entry_id": entry_id, "args": args}
            created = await node.operations.call(LOCAL, "runs.create", request)
            run_id = created["run"]["run_id"]
            following = await node.operations.call(LOCAL, "log.follow", {"channel": "runs"})
            deaf = False
            while not deaf:
                changes = [one.as_event() for one in (await following.next_delivery()).events]
                deaf = any(change.get("stage") == "deaf" for change in changes)
            print(run_id, flush=True)  # noqa: T201 - to the test
            await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), sys.argv[2])
