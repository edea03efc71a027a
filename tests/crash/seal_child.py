"""A program whose runs have sealed secrets, and which says how far each of them has come.

    ACK 0192...     the run with this id was accepted
    END 0192...     it has ended

With a mutant it does so in a way that loses secrets.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

import perdure.runtime.secrets.sealed_files
from perdure import RunContext, Secret, entry, plugin
from perdure.actors.run.events import RunCreated
from perdure.eventlog import RealEnv, SqliteStore, open_log
from perdure.eventlog.sqlite.file import sync_directory
from perdure.runtime.execution.creator import Creator, Made, NewRun
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.feature import open_run_node
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CreateRun
from perdure.runtime.secrets.secrets import Accepted, Secrets, open_secrets
from tests.crash.recorded_program import main
from tests.crash.soundness import LOG_NAME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection


RUNS: Final = 6


def token(number: int) -> str:
    """The secret of a run; some are longer than a sector of the disk."""
    return f"secret-{number} " * (1 + 60 * (number % 3))


@plugin("crash")
class Guarded:
    """What is executed while the power is cut."""

    @entry
    async def use(self, ctx: RunContext, number: int, token: Secret) -> None:
        """Put something out between the beginning and the end."""
        await ctx.run.export_text(f"{number}: {len(token)}")


PLUGINS: Final = {"crash": declared(Guarded)}


async def serve(directory: Path, answers: int) -> None:
    """Take up what is open, create runs, and wait for the ends of all."""
    env = RealEnv()
    store = SqliteStore.open(directory / LOG_NAME, env=env)
    secrets = open_secrets(env, directory, {})
    async with (
        open_log(env, store) as log,
        open_run_node(log, PLUGINS, secrets=secrets) as node,
    ):
        run_ids = [listed.run_id for listed in await runs_of(node).index.open_runs(0)]
        for number in range(RUNS):
            args = {"number": number, "token": token(number)}
            request = CreateRun(plugin_id="crash", entry_id="use", args=args)
            created = await runs_of(node).runs.create(LOCAL, request)
            run_ids.append(created["run"]["run_id"])
            os.write(answers, f"ACK {run_ids[-1]}\n".encode())
            if number % 2:
                await runs_of(node).executor.end_of(run_ids[-1])
        for run_id in run_ids:
            await runs_of(node).executor.end_of(run_id)
            os.write(answers, f"END {run_id}\n".encode())
        await trio.sleep(0.05)  # the last seal is being dropped
    store.close()


def without_directory_sync() -> None:
    """Rename, and leave it at that."""
    setattr(perdure.runtime.secrets.sealed_files, "sync_directory", lambda _: None)  # noqa: B010 - not its own name


def without_file_sync() -> None:
    """Rename what may still be in the kernel's memory."""

    def write_whole(path: Path, data: bytes) -> None:
        unfinished = path.with_name(path.name + ".new")
        unfinished.write_bytes(data)
        unfinished.chmod(0o600)
        unfinished.rename(path)
        sync_directory(path.parent)

    perdure.runtime.secrets.sealed_files.write_whole = write_whole


def event_first() -> None:
    """Put the run into the log, and then its secret on the disk."""

    async def sealed(self: Creator, new: NewRun, begin: Callable[[], Awaitable[Made]]) -> Made:
        made = await begin()
        await self._context.secrets._seal(new.run_id, new.accepted)
        return made

    Creator.sealed = sealed  # type: ignore[method-assign]


def dropped_early() -> None:
    """Forget a secret when the entry has got it."""
    real = Secrets.resolve

    async def resolve(self: Secrets, names: Collection[str], created: RunCreated) -> Accepted:
        found = await real(self, names, created)
        await self.drop(created.run_id)
        return found

    Secrets.resolve = resolve  # type: ignore[method-assign]


MUTANTS: Final[dict[str, Callable[[], None]]] = {
    "without-directory-sync": without_directory_sync,
    "without-file-sync": without_file_sync,
    "event-first": event_first,
    "dropped-early": dropped_early,
}


if __name__ == "__main__":
    main(serve, MUTANTS)
