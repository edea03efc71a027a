"""A program that backs up a log, or restores one."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

import trio

from perdure.eventlog import RealEnv, SqliteStore, back_up, open_log, restore
from tests.crash.writing_child import end_with_standard_input


async def copy(source: Path, target: Path) -> None:
    """Back up a log, reading it beside its writer."""
    store = SqliteStore.open_reader(source)
    async with open_log(RealEnv(), store) as log:
        await back_up(log, target)
    store.close()


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=["back-up", "restore"])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    if options.task == "back-up":
        trio.run(copy, options.source, options.target)
    else:
        restore(options.source, options.target, env=RealEnv()).close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
