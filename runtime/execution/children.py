"""Children: runs that a run has started, and that end when it is canceled or out of time.

A parent that ends by itself, well or badly, leaves its children alone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from perdure.actors.run.commands import RequestCancel
from perdure.actors.run.events import RunCreated
from perdure.actors.run.status import CancelMode, Status
from perdure.actors.run.stream import stream_of
from perdure.eventlog.errors import LogClosed
from perdure.runtime.execution.creation_write import first_write
from perdure.runtime.plugins.entries import check_args
from perdure.runtime.secrets.run_logging import about_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perdure.actors.run.commands import Deliver
    from perdure.actors.run.core import Run
    from perdure.actors.run.events import ChildStarted
    from perdure.runtime.execution.host import Host
    from perdure.runtime.secrets.secrets import Accepted

_log = logging.getLogger("perdure.children")


def takes_its_children_along(run: Run) -> bool:
    """Tell whether a run ends in a way that ends its children."""
    return run.cancel is not None or run.status is Status.TIMEOUT


class Children:
    """The children of one host's runs."""

    def __init__(self, host: Host) -> None:
        """Start and cancel them through the host."""
        self._host = host

    async def accepted(
        self, parent: RunCreated, plugin_id: str, entry_id: str, args: Mapping[str, Any]
    ) -> Accepted:
        """Take the arguments of a child that is to be started, or say why it cannot be."""
        entry = self._host.entries.find(plugin_id, entry_id)
        accepted = await self._host.secrets.accept(entry.secrets, args, parent.tenant)
        check_args(entry, accepted.real, accepted.redactor)
        return accepted

    async def start(
        self,
        parent: Run,
        started: ChildStarted,
        take: Callable[[], Deliver],
        plugin_id: str,
        entry_id: str,
        accepted: Accepted,
    ) -> None:
        """Create a child in the same append as a delivery of its parent, which is taken last."""
        entry = self._host.entries.find(plugin_id, entry_id)
        created = RunCreated(
            run_id=started.child_run_id,
            plugin_id=plugin_id,
            entry_id=entry_id,
            args=accepted.args,
            tenant=parent.created.tenant,
            principal=parent.created.principal,
            root_run_id=started.child_run_id,
            attempt=1,
            at=started.at,
            task_id=parent.created.task_id,
            trace_id=parent.created.trace_id,
            session_id=parent.created.session_id,
            started_by=parent.created.run_id,
            timeout=self._host.limits.timeout_of(entry.timeout),
        )
        also = [first_write(self._host.env, created)]
        begun = False
        async with self._host.secrets.sealed(created.run_id, accepted, lambda: begun):
            await self._host.ask(parent.created.run_id, take(), also=also)
            begun = True
        self._host.dispatch(started.child_run_id, plugin_id)

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
        parent = (await self._host.runs.look(stream_of(parent_id))).state
        if not takes_its_children_along(parent):
            return child
        return await self._cancel(child.created.run_id, parent)

    async def _cancel(self, child: str, parent: Run) -> Run:
        out_of_time = parent.cancel is None
        mode, at = parent.cancel_mode or CancelMode.COOPERATIVE, self._host.env.now()
        request = RequestCancel(
            by=self._host.name,
            reason="its parent is out of time" if out_of_time else "its parent was canceled",
            mode=mode,
            at=at,
            deadline=self._host.limits.next_step_at(mode, at),
        )
        return (await self._host.ask(child, request)).state
