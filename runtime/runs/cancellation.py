"""Asking a run to end, for whoever may: one run, or many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.actors.run.commands import RequestCancel
from perdure.actors.run.status import CancelMode
from perdure.actors.run.stream import stream_of

if TYPE_CHECKING:
    from perdure.actors.folded import Folded
    from perdure.actors.run.core import Run
    from perdure.actors.run.events import RunCreated
    from perdure.runtime.execution.executor import Executor
    from perdure.runtime.kernel.principal import Principal


class Cancellation:
    """Asks runs of one executor to end."""

    def __init__(self, executor: Executor) -> None:
        """Ask through the executor."""
        self._executor = executor

    async def ask_to_end(
        self, principal: Principal, created: RunCreated, *, reason: str | None, force: bool
    ) -> Folded[Run]:
        """Ask a run that the principal may see to end; one that has ended stays as it is."""
        context = self._executor.context
        redactor = await self._executor.redactor_of(created)
        mode, at = CancelMode.FORCE if force else CancelMode.COOPERATIVE, context.env.now()
        command = RequestCancel(
            by=str(principal),
            reason=redactor.maybe_text(reason),
            mode=mode,
            at=at,
            deadline=context.limits.harder_at(mode, at),
        )
        return await self._executor.runs.ask(
            stream_of(created.run_id), command, principal=str(principal), new_work=True
        )
