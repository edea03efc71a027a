"""Children: runs that a run has started, and that end when it is canceled or out of time.

A parent that ends by itself, well or badly, leaves its children alone.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.actors.run.commands import RequestCancel
from perdure.actors.run.status import CancelMode, Status
from perdure.actors.run.stream import stream_of
from perdure.eventlog.errors import LogClosed
from perdure.runtime.secrets.logged_run import about_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.actors.folded import Folded
    from perdure.actors.run.commands import Deliver
    from perdure.actors.run.core import Run
    from perdure.actors.run.events import ChildStarted
    from perdure.eventlog.append import StreamWrite
    from perdure.runtime.execution.creator import NewRun
    from perdure.runtime.execution.executor import Executor

_log = logging.getLogger("perdure.children")


def takes_its_children_along(run: Run) -> bool:
    """Tell whether a run ends in a way that ends its children."""
    return run.cancel is not None or run.status is Status.TIMEOUT


class Children:
    """The children of one executor's runs."""

    def __init__(self, executor: Executor) -> None:
        """Start and cancel them through the executor."""
        self._executor = executor

    async def start(
        self, parent: Run, started: ChildStarted, child: NewRun, take: Callable[[], Deliver]
    ) -> Folded[Run]:
        """Create a child in the same append as a delivery of its parent, which is taken last.

        Give the parent as it is then.
        """
        creator, origin = self._executor.creator, parent.created
        created = replace(
            creator.created(child, origin.tenant, origin.principal),
            at=started.at,
            task_id=origin.task_id,
            trace_id=origin.trace_id,
            session_id=origin.session_id,
            started_by=origin.run_id,
        )

        async def deliver(first: StreamWrite) -> Folded[Run]:
            return await self._executor.ask(origin.run_id, take(), also=[first])

        return await creator.sealed(child, partial(creator.append_with, child, created, deliver))

    async def cancel(self, parent: Run) -> None:
        """Cancel the children of a run; one that cannot be reached hurts no other."""
        for child in parent.children:
            try:
                await self._cancel(child, parent)
            except LogClosed:
                return  # this host is going down; the next one sees to it
            except Exception:  # noqa: BLE001 - the edge of a run: what breaks it touches no other
                with about_run(child):
                    _log.exception("run %s could not be canceled with its parent", child)

    async def cancel_with_its_parent(self, child: Run, parent_id: str) -> Run:
        """Cancel a child whose parent ended when there was no time left to tell it."""
        parent = (await self._executor.runs.look(stream_of(parent_id))).state
        if not takes_its_children_along(parent):
            return child
        return await self._cancel(child.created.run_id, parent)

    async def _cancel(self, child: str, parent: Run) -> Run:
        out_of_time = parent.cancel is None
        context = self._executor.context
        mode, at = parent.cancel_mode or CancelMode.COOPERATIVE, context.env.now()
        request = RequestCancel(
            by=context.name,
            reason="its parent is out of time" if out_of_time else "its parent was canceled",
            mode=mode,
            at=at,
            deadline=context.limits.harder_at(mode, at),
        )
        return (await self._executor.ask(child, request)).state
