"""What a host needs to execute entries in processes: ``perdure.runtime.process.pool`` has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never, Protocol

import trio

from perdure.runtime.plugins.contract import PluginError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from perdure.runtime.execution.execution import Execution
    from perdure.runtime.execution.inline_port import InlinePort
    from perdure.runtime.plugins.plugin import Entry, Program


class Processes(Protocol):
    """All processes of one host."""

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Own the processes until cancelled; then none is left."""

    async def call(
        self, execution: Execution, entry: Entry, port: InlinePort, args: Mapping[str, Any]
    ) -> Any:  # noqa: ANN401 - what the entry returns
        """Have an entry executed by a process; when this returns or raises, nothing of it runs."""

    async def keep_only(self, programs: Collection[Program]) -> None:
        """End processes of other programs: those that wait now, those at work after their run."""


class NoProcesses:
    """The processes of a host that starts none."""

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Own nothing."""
        task_status.started()
        await trio.sleep_forever()

    async def call(
        self,
        execution: Execution,  # noqa: ARG002 - nothing is executed
        entry: Entry,
        port: InlinePort,  # noqa: ARG002
        args: Mapping[str, Any],  # noqa: ARG002
    ) -> Never:
        """Refuse to execute an entry."""
        raise PluginError("PLUGIN_NOT_STARTED", f"this host starts no process for {entry.id!r}")

    async def keep_only(self, programs: Collection[Program]) -> None:
        """Keep nothing."""
