"""Blobs: how fast bytes stream in and are on disk, ranges come back, and exports take either way.

What is written is as random as a hash: no disk and no file system can make less of it.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from perdure import RunContext, entry, plugin
from perdure.eventlog import RealEnv
from perdure.eventlog.sqlite.file import sync_directory
from perdure.runtime.blobs.blob import Blob
from perdure.runtime.blobs.file_depot import FileDepot
from perdure.runtime.blobs.store import BlobStore
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.feature import open_run_node
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CreateRun
from perdure.runtime.runs.settings import RunSettings
from tools.bench.benchmark import Benchmark, Figure, Setting, Sides
from tools.bench.measure import Sample, Stopwatch, latencies
from tools.bench.workload import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MIB: Final = 1 << 20
_SCOPE: Final = "bench"
_PIECE: Final = 64 << 10  # as a socket gives them
_WRITTEN: Final = 128  # MiB
_READS: Final = 2000
_READ_FROM: Final = 32  # MiB
_EXPORTS: Final = 200
_INLINE: Final = RunSettings().inline_limit


def _pieces(size: int, seed: int) -> list[bytes]:
    """Give bytes in pieces, none of them like another."""
    source = random.Random(seed)
    return [source.randbytes(_PIECE) for _ in range(size // _PIECE)]


# Writing


def _write_ours(setting: Setting, pieces: list[bytes]) -> Sample:
    """Stream pieces into a blob and wait until it survives a power cut."""
    with setting.scratch() as directory:

        async def main() -> Sample:
            """Measure on an open store."""
            blobs = BlobStore(RealEnv(), FileDepot(directory))
            with Stopwatch() as watch:
                async with blobs.draft(_SCOPE) as draft:
                    for piece in pieces:
                        await draft.write(piece)
                    await draft.publish()
            return watch.sample(len(pieces) * _PIECE // MIB)

        return trio.run(main)


def _write_bare(setting: Setting, pieces: list[bytes]) -> Sample:
    """Write the same pieces to a file, sync it and its directory."""
    with setting.scratch() as directory:
        with Stopwatch() as watch:
            with (directory / "plain").open("wb", buffering=0) as file:
                for piece in pieces:
                    file.write(piece)
                os.fsync(file.fileno())
            sync_directory(directory)
        return watch.sample(len(pieces) * _PIECE // MIB)


@contextmanager
def _writes(setting: Setting) -> Iterator[Sides]:
    """Open the sides of blob-write."""
    pieces = _pieces(setting.size(_WRITTEN) * MIB, seed=1)
    yield Sides(partial(_write_ours, setting, pieces), partial(_write_bare, setting, pieces))


# Reading


async def _stored(directory: Path, pieces: list[bytes]) -> str:
    """Make a blob; give its hash."""
    blobs = BlobStore(RealEnv(), FileDepot(directory))
    async with blobs.draft(_SCOPE) as draft:
        for piece in pieces:
            await draft.write(piece)
        return (await draft.publish()).sha256


def _read_ours(blobs: BlobStore, sha256: str, starts: list[int]) -> Sample:
    """Open the blob and read a range of it, again and again."""

    async def main() -> Sample:
        """Measure on an open store."""
        taken = []
        with Stopwatch() as watch:
            for start in starts:
                begun = time.perf_counter()
                async with blobs.open(Blob(_SCOPE, sha256)) as reading:
                    await reading.read(start, _PIECE)
                taken.append(time.perf_counter() - begun)
        return watch.sample(len(starts), latencies(taken))

    return trio.run(main)


def _read_bare(path: Path, starts: list[int]) -> Sample:
    """Open the file and read the same ranges of it, in one thread."""
    taken = []
    with Stopwatch() as watch:
        for start in starts:
            begun = time.perf_counter()
            fd = os.open(path, os.O_RDONLY)
            os.pread(fd, _PIECE, start)
            os.close(fd)
            taken.append(time.perf_counter() - begun)
    return watch.sample(len(starts), latencies(taken))


@contextmanager
def _reads(setting: Setting) -> Iterator[Sides]:
    """Open the sides of blob-read: ranges anywhere in one blob."""
    size = setting.size(_READ_FROM) * MIB
    chance = random.Random(2)
    starts = [chance.randrange(size - _PIECE) for _ in range(setting.size(_READS, 10))]
    with setting.scratch() as directory:
        sha256 = trio.run(_stored, directory, _pieces(size, seed=3))
        (path,) = [path for path in (directory / "scopes").rglob("*") if path.is_file()]

        def ours() -> Sample:
            """Read with a store of its own: each belongs to one event loop."""
            return _read_ours(BlobStore(RealEnv(), FileDepot(directory)), sha256, starts)

        yield Sides(ours, partial(_read_bare, path, starts))


# Exporting


@plugin("bench-blobs")
class Exporting:
    """What is measured."""

    @entry
    async def exports(self, ctx: RunContext, number: int, size: int) -> None:
        """Export bytes, each time others."""
        chance = random.Random(size)
        for _ in range(number):
            await ctx.run.export_bytes(chance.randbytes(size))


def _export(setting: Setting, number: int, size: int) -> Sample:
    """Let a run export bytes, from create to its end."""
    with setting.scratch() as directory:

        async def main() -> Sample:
            """Measure on an open node."""
            blobs = BlobStore(RealEnv(), FileDepot(directory))
            plugins = {"bench-blobs": declared(Exporting)}
            async with (
                opened(directory / "log.db") as log,
                open_run_node(log, plugins, data=DataDir(directory), blobs=blobs) as node,
            ):
                args = {"number": number, "size": size}
                request = CreateRun(plugin_id="bench-blobs", entry_id="exports", args=args)
                with Stopwatch() as watch:
                    created = await runs_of(node).runs.create(LOCAL, request)
                    ended = await runs_of(node).executor.end_of(created["run"]["run_id"])
                if ended.state.error is not None:
                    raise RuntimeError(ended.state.error.message)
                return watch.sample(number)

        return trio.run(main)


@contextmanager
def _exports(setting: Setting) -> Iterator[Sides]:
    """Open the sides of blob-export: a byte more than fits into an item, and as many as do."""
    number = setting.size(_EXPORTS, 3)
    sides: list[Callable[[], Sample]] = [
        partial(_export, setting, number, size) for size in (_INLINE + 1, _INLINE)
    ]
    yield Sides(*sides)


BLOB_WRITE: Final = Benchmark(
    name="blob-write",
    title="bytes streamed into a blob in pieces of 64 KiB, until it is on disk",
    baseline="a plain file written in the same pieces, with fsync",
    prepare=_writes,
    counted="MiB",
)
BLOB_READ: Final = Benchmark(
    name="blob-read",
    title="ranges of 64 KiB anywhere in a blob, opened for each",
    baseline="open, pread and close of the same ranges of the same file",
    prepare=_reads,
    counted="reads",
    figures=[Figure("p50", "p50, ms"), Figure("p99", "p99, ms")],
)
BLOB_EXPORT: Final = Benchmark(
    name="blob-export",
    title="export_bytes of a byte more than an item holds: a blob each",
    baseline="export_bytes of as many bytes as an item holds: in the log",
    prepare=_exports,
    counted="exports",
)
