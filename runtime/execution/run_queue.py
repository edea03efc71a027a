"""The queue of an executor: which run starts next, within the limits of host and plugin."""

from __future__ import annotations

from collections import Counter, deque
from math import inf
from typing import TYPE_CHECKING

from perdure.runtime.execution.limits import ALIVE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.runtime.execution.host_context import HostContext


class RunQueue:
    """Runs that wait for their turn, by plugin, and how many are being executed."""

    def __init__(self, context: HostContext) -> None:
        """Nothing waits and nothing runs."""
        self._entries = context.entries
        self._limit = context.limits.runs
        self._waiting: dict[str, deque[str]] = {}  # plugin -> run ids, as many as were accepted
        self._running: Counter[str] = Counter()
        self._resting = 0  # of those, how many only wait

    @property
    def running(self) -> int:
        """How many runs are being executed."""
        return self._running.total()

    @property
    def waiting(self) -> int:
        """How many runs wait for their turn."""
        return sum(map(len, self._waiting.values()))

    def add(self, run_id: str, plugin_id: str) -> None:
        """Put a run at the end of the line of its plugin."""
        self._waiting.setdefault(plugin_id, deque()).append(run_id)

    def take_ready(self) -> Iterator[tuple[str, str]]:
        """Take what may start now, one of each plugin in turn; what is taken counts as running."""
        if not self._waiting:
            return
        ready = [plugin_id for plugin_id in self._waiting if self._may_start(plugin_id)]
        while ready and self._has_room():
            for plugin_id in ready:
                if not self._has_room():
                    break
                run_id = self._waiting[plugin_id].popleft()
                self._running[plugin_id] += 1
                self._waiting[plugin_id] = self._waiting.pop(plugin_id)  # to the end of the line
                yield run_id, plugin_id
            ready = [plugin_id for plugin_id in ready if self._may_start(plugin_id)]
        for plugin_id in [each for each, waiting in self._waiting.items() if not waiting]:
            del self._waiting[plugin_id]

    def rest(self, by: int) -> None:
        """Count one more, or less, of those that run and do nothing but wait."""
        self._resting += by

    def ended(self, plugin_id: str) -> None:
        """Count one less that is being executed."""
        self._running[plugin_id] -= 1

    def _has_room(self) -> bool:
        """Whether one more may start: what only waits takes little room."""
        running = self.running
        return running - self._resting < self._limit and running < self._limit * ALIVE

    def _may_start(self, plugin_id: str) -> bool:
        plugin = self._entries.plugins.get(plugin_id)
        limit = (plugin.limit if plugin is not None else None) or inf
        return bool(self._waiting[plugin_id]) and self._running[plugin_id] < limit
