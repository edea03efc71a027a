"""Runs that are executed apart: on a log in memory that is thrown away with all it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outcome import Error, Value

from perdure.eventlog.log import open_log
from perdure.eventlog.memory import MemoryStore
from perdure.runtime.kernel.errors import OperationError

if TYPE_CHECKING:
    from outcome import Outcome

    from perdure.runtime.execution.host_context import HostContext
    from perdure.runtime.kernel.principal import Principal
    from perdure.runtime.runs.answers import RunAnswer
    from perdure.runtime.runs.requests import CreateRun
    from perdure.runtime.runs.settings import UnknownEntries

MOST_AT_ONCE: Final = 32


class DirectRuns:
    """Executes runs apart from the log."""

    def __init__(self, context: HostContext, unknown_entries: UnknownEntries) -> None:
        """Execute what a host can execute, and treat what it cannot as its runs are treated."""
        self._context = context
        self._unknown_entries = unknown_entries
        self._count = 0

    async def outcome(self, principal: Principal, request: CreateRun) -> RunAnswer:
        """Execute one run; what has not ended after the wait is ended."""
        if self._count >= MOST_AT_ONCE:
            raise OperationError("OVERLOADED", "too many entries run apart; try again later")
        self._count += 1
        try:
            return (await self._execute(principal, request)).unwrap()
        finally:
            self._count -= 1

    async def _execute(self, principal: Principal, request: CreateRun) -> Outcome[RunAnswer]:
        from perdure.runtime.runs.feature import open_run_node  # noqa: PLC0415 - it opens this
        from perdure.runtime.runs.part import runs_of  # noqa: PLC0415 - as above

        context = self._context
        async with (
            open_log(context.env, MemoryStore()) as log,
            open_run_node(
                log,
                context.entries.plugins,
                limits=context.limits,
                secrets=context.secrets.apart(),
                trigger="off",
                unknown_entries=self._unknown_entries,
            ) as node,
        ):
            try:
                return Value(await runs_of(node).runs.outcome(principal, request))
            except Exception as error:  # noqa: BLE001 - raised outside of the nurseries
                return Error(error)
