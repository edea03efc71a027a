"""A program that follows a log beside its writer and says which records it sees."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import trio

from perdure.eventlog import RealEnv, SqliteStore, open_log
from tests.crash.writing_child import end_with_standard_input


async def follow(path: Path) -> None:
    """Follow the log for ever."""
    store = SqliteStore.open_reader(path)
    async with open_log(RealEnv(), store) as log:
        async for batch in await log.follow():
            lines = (f"SEEN {r.position} {r.event_id.hex()}\n" for r in batch.records)
            os.write(1, "".join(lines).encode())


if __name__ == "__main__":
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    trio.run(follow, Path(sys.argv[1]))
