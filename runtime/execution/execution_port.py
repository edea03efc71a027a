"""The desk: what an execution needs of its host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import trio

    from perdure.actors.folded import Folded
    from perdure.actors.run.commands import RunCommand
    from perdure.actors.run.core import Run
    from perdure.eventlog.append import StreamWrite
    from perdure.eventlog.env import Env
    from perdure.runtime.blobs.store import BlobStore
    from perdure.runtime.execution.children import Children
    from perdure.runtime.execution.execution import Execution
    from perdure.runtime.execution.inline_port import InlinePort
    from perdure.runtime.execution.limits import HostLimits
    from perdure.runtime.plugins.entries import Entries
    from perdure.runtime.plugins.plugin import Entry
    from perdure.runtime.secrets.secrets import Secrets


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
        self, execution: Execution, entry: Entry, port: InlinePort, args: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - what the entry returns
        """Call an entry, wherever it runs."""

    async def has_export(self, owner: Run, item_id: str) -> bool:
        """Tell whether an item exists and belongs to the same owner."""
