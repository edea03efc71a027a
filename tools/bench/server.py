"""A server in a process of its own, so that its CPU time is its own.

``python -m tools.bench.server DIR`` is one.

It says on which port it listens, and ends with its standard input.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import trio

from perdure.runtime.features import FEATURES
from perdure.runtime.kernel.settings import SettingsTable
from perdure.runtime.server.garbage import leave_alone_what_is_there
from perdure.runtime.server.server import Server, Serving
from tools.bench.measure import Sample
from tools.bench.runs import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).resolve().parents[2]
_CPU_CLOCK: Final = 2  # with the pid above it: the CPU clock of a process, as Linux names it
_KIB: Final = 1024


class Served:
    """A server that runs, as its clients see it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        """Wrap a process that listens on a port."""
        self._process = process
        self.port = port

    @property
    def cpu(self) -> float:
        """The seconds of CPU time that it has taken, of all its threads."""
        return time.clock_gettime(~self._process.pid << 3 | _CPU_CLOCK)

    @property
    def resident(self) -> float:
        """The KiB of memory that it has in use."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / _KIB


class ServerWatch:
    """Wall time of a block, and the CPU time that a server took meanwhile."""

    def __init__(self, server: Served) -> None:
        """Watch a server."""
        self._server = server

    def __enter__(self) -> Self:
        """Start."""
        gc.collect()
        self._cpu = self._server.cpu
        self._wall = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.wall = time.perf_counter() - self._wall
        self.cpu = self._server.cpu - self._cpu

    def sample(self, count: int, figures: Mapping[str, float] | None = None) -> Sample:
        """Give what was measured, for so many things done."""
        return Sample(wall=self.wall, cpu=self.cpu, count=count, figures=figures or {})


@contextmanager
def served(directory: Path, module: str = __name__) -> Iterator[Served]:
    """Run a server on a log for the length of a block."""
    command = [sys.executable, "-m", module, str(directory)]
    with subprocess.Popen(
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None  # noqa: S101 - asked for
        yield Served(process, json.loads(process.stdout.readline())["port"])
        process.kill()


async def _serve(directory: Path) -> None:
    values = {"data_dir": str(directory), "port": 0, "demo": False, "modules": [Bench.__module__]}
    settings = SettingsTable(FEATURES.settings).settings(values)
    async with trio.open_nursery() as nursery:
        serving: Serving = await nursery.start(Server(settings, FEATURES).run)
        leave_alone_what_is_there()
        print(json.dumps({"port": int(serving.url.rpartition(":")[2])}), flush=True)
        await trio.lowlevel.wait_readable(sys.stdin)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(_serve, Path(sys.argv[1]))
