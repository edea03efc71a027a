"""A program whose runs export blobs, and which says so when an export has returned.

    ACK 0192... 5e88...     the run with this id has exported bytes with this hash

With a mutant it does so in a way that loses blobs.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import perdure.runtime.blobs.file_depot
from perdure import RunContext, entry, plugin
from perdure.eventlog import RealEnv, SqliteStore, open_log
from perdure.runtime.blobs.blob import Blob, scope_of
from perdure.runtime.blobs.file_depot import FileDepot
from perdure.runtime.blobs.store import BlobStore
from perdure.runtime.execution.exports import Exports
from perdure.runtime.execution.limits import HostLimits
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.feature import open_run_node
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CreateRun
from tests.crash.recorded_program import main
from tests.crash.soundness import LOG_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.runtime.plugins.run_messages import Bytes

RUNS: Final = 3
EXPORTS: Final = 6
INLINE: Final = 1000


def content(number: int) -> bytes:
    """The bytes of an export; every third is equal to another."""
    return sha256(b"%d" % (number - number % 3 // 2)).digest() * (100 + 40 * number)


@plugin("crash")
class Exporting:
    """What is executed while the power is cut."""

    answers: int

    @entry
    async def blobs(self, ctx: RunContext) -> None:
        """Export blobs, one after the other."""
        for number in range(EXPORTS):
            data = content(number)
            await ctx.run.export_bytes(data, key=f"{number}")
            line = f"ACK {ctx.run.id} {sha256(data).hexdigest()}\n"
            os.write(self.answers, line.encode())


async def serve(directory: Path, answers: int) -> None:
    """Take up what is open, create runs unless there are some, and wait for their ends."""
    Exporting.answers = answers
    env = RealEnv()
    store = SqliteStore.open(directory / LOG_NAME, env=env)
    blobs = BlobStore(env, FileDepot(directory))
    plugins = {"crash": declared(Exporting)}
    limits = HostLimits(inline_limit=INLINE)
    async with (
        open_log(env, store) as log,
        open_run_node(log, plugins, limits=limits, blobs=blobs) as node,
    ):
        open_runs = [listed.run_id for listed in await runs_of(node).index.open_runs(0)]
        request = CreateRun(plugin_id="crash", entry_id="blobs", args={})
        for _ in range(RUNS - len(open_runs)):
            created = await runs_of(node).runs.create(LOCAL, request)
            open_runs.append(created["run"]["run_id"])
        for run_id in open_runs:
            await runs_of(node).executor.end_of(run_id)
    store.close()


def without_directory_sync() -> None:
    """Rename, and leave it at that."""
    setattr(perdure.runtime.blobs.file_depot, "sync_directory", lambda _: None)  # noqa: B010 - not its own name


def without_file_sync() -> None:
    """Rename what may still be in the kernel's memory."""

    def publish(draft: Any, blob: Blob, now: int) -> None:
        draft._depot.publish(draft._path, blob)
        draft._published = True

    perdure.runtime.blobs.file_depot._FileDraft.publish = publish  # type: ignore[method-assign,assignment]


def event_first() -> None:
    """Put the event into the log, and then the blob on the disk."""

    async def export_bytes(exports: Exports, item: Bytes, data: bytes) -> str:
        blob = Blob(scope_of(exports._execution.run), sha256(data).hexdigest())
        number = await exports._put_durably(blob.url, item)
        async with exports._execution.blobs.draft(blob.scope) as draft:
            await draft.write(data)
            await draft.publish()
        return exports._id(number)

    Exports.export_bytes = export_bytes  # type: ignore[method-assign,assignment]


def trusting() -> None:
    """Sync only the directories that this process has made itself."""
    real = FileDepot.make_directories

    def make_directories(depot: FileDepot, directory: Path) -> None:
        if not directory.exists():
            real(depot, directory)

    FileDepot.make_directories = make_directories  # type: ignore[method-assign,assignment]


MUTANTS: Final[dict[str, Callable[[], None]]] = {
    "without-directory-sync": without_directory_sync,
    "without-file-sync": without_file_sync,
    "event-first": event_first,
    "trusting": trusting,
}


if __name__ == "__main__":
    main(serve, MUTANTS)
