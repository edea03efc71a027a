"""The desk: what an execution needs of its host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import trio

    from actors.folded import Folded
    from actors.run.commands import RunCommand
    from actors.run.core import Run
    from eventlog.append import StreamWrite
    from eventlog.env import Env
    from runtime.blobs.store import BlobStore
    from runtime.execution.children import Children
    from runtime.execution.execution import Execution
    from runtime.execution.limits import HostLimits
    from runtime.plugins.contract import RunContext
    from runtime.plugins.entries import Entries
    from runtime.plugins.plugin import Entry
    from runtime.secrets.secrets import Secrets


class Desk(Protocol):
    """What an execution needs of its host."""

    env: Env
    limits: HostLimits
    threads: trio.CapacityLimiter
    blobs: BlobStore
    children: Children
    entries: Entries
    secrets: Secrets

    async def ask(
        self, run_id: str, command: RunCommand, *, also: Sequence[StreamWrite] = ()
    ) -> Folded[Run]:
        """Ask the run's actor."""

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task beside the executions."""

    def rest(self, by: int) -> None:
        """Know of one execution more, or less, that does nothing but wait."""

    async def call(
        self, execution: Execution, entry: Entry, ctx: RunContext, args: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - what the entry returns
        """Call an entry, wherever it runs."""

    async def has_export(self, owner: Run, item_id: str) -> bool:
        """Tell whether an item exists and belongs to the same owner."""
