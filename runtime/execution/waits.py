"""What an entry waits for through ``ctx.run``: an instant, or an answer.

Both are in the log, so the next host can wait as well: a host that goes down need not.
"""

from __future__ import annotations

from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any

import trio

from perdure.eventlog.units import NANOSECONDS
from perdure.runtime.execution.escalation import LOOK_AGAIN, SHORTEST
from perdure.runtime.plugins.contract import RunCancelled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.runtime.execution.execution import Execution


class Waiting:
    """Waits for an execution; a cancel request ends each wait."""

    def __init__(self, execution: Execution) -> None:
        """Nothing is waited for yet."""
        self._execution = execution
        self._ends: list[float] = []  # the instants until which its tasks wait
        self._steps = 0  # how many of its tasks are in a step
        self._rests = False

    async def until(self, instant: int) -> None:
        """Wait until a wall time, and no longer than the time that is left now.

        So setting the clock back makes no wait longer; setting it forward is noticed soon.
        """
        latest = trio.current_time() + self._seconds_until(instant)
        with self._counted(instant):
            while (left := min(self._seconds_until(instant), latest - trio.current_time())) > 0:
                with trio.move_on_after(min(max(left, SHORTEST), LOOK_AGAIN)):
                    await self._news()

    async def answer_to(self, question_id: str) -> Any:  # noqa: ANN401 - whatever was answered
        """Wait for an answer."""
        with self._counted(inf):
            while question_id not in self._execution.run.answers:
                await self._news()
        return self._execution.run.answers[question_id]

    def goes_on_beyond(self, instant: int) -> bool:
        """Tell whether the entry does nothing but wait, and still will at an instant."""
        return self._rests and min(self._ends) > instant

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Do a step: while one is done, the entry does not only wait."""
        self._steps += 1
        self._note()
        try:
            yield
        finally:
            self._steps -= 1
            self._note()

    def _seconds_until(self, instant: int) -> float:
        return (instant - self._execution.now()) / NANOSECONDS

    async def _news(self) -> None:
        changed = self._execution.changed
        if self._execution.cancel_requested:
            raise RunCancelled(self._execution.cancel_reason)
        await changed.wait()

    @contextmanager
    def _counted(self, end: float) -> Iterator[None]:
        self._ends.append(end)
        self._note()
        try:
            yield
        finally:
            self._ends.remove(end)
            self._note()

    def _note(self) -> None:
        """Tell the host when the entry has nothing to do but wait, and when it has again."""
        rests = bool(self._ends) and not self._steps
        if rests != self._rests:
            self._rests = rests
            self._execution.rests(1 if rests else -1)
