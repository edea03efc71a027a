"""Reports of a run, thinned: the newest progress, stage and message wait for their window.

All that waits leaves as one event. A message stays until another comes, or a stage without one. The
window begins when the report before was stored, so that followers see no two of them closer than
that, and it grows with the age of the run. Pure: the caller says what time it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.actors.run.events import ProgressReported, StageChanged

if TYPE_CHECKING:
    from perdure.actors.run.events import Report

WINDOW: Final = 100_000_000  # nanoseconds between two reports of one run, at least
LONG_RUN: Final = 1000  # a run that has lasted long reports at most so often in its life


class Reports:
    """The report that waits, and the window that it waits for."""

    def __init__(self, started_at: int) -> None:
        """Nothing was reported yet, by a run that was started then."""
        self._started_at = started_at
        self._waiting: Report | None = None
        self._stored_at: int | None = None  # the report before; None opens the window
        self._is_on_its_way = False  # it was taken, and its instant is not known yet

    def __bool__(self) -> bool:
        """Whether one waits."""
        return self._waiting is not None

    def progress(self, progress: float, message: str | None, now: int) -> None:
        """Report progress; without a message the one before stays."""
        before = self._waiting
        keeps_message = message is None and (
            before is None or (isinstance(before, ProgressReported) and before.keeps_message)
        )
        self._waiting = ProgressReported(
            progress=progress,
            message=before.message if message is None and before is not None else message,
            stage=None if before is None else before.stage,
            keeps_message=keeps_message,
            at=now,
        )

    def stage(self, stage: str, message: str | None, now: int) -> None:
        """Report a stage, with its message or without any."""
        before = self._waiting
        if isinstance(before, ProgressReported):
            progress = before.progress
            self._waiting = ProgressReported(
                progress=progress, message=message, stage=stage, at=now
            )
        else:
            self._waiting = StageChanged(stage=stage, message=message, at=now)

    def drop_stage(self, stage: str) -> None:
        """Forget a stage that waits, and its message; progress that waits with it stays."""
        before = self._waiting
        if before is None or before.stage != stage:
            return
        self._waiting = None
        if isinstance(before, ProgressReported):
            self.progress(before.progress, None, before.at)

    def open_window(self) -> None:
        """Let what waits leave with the next flush."""
        self._stored_at = None

    def due(self, now: int) -> int:
        """When the window opens; one that ends before it began, by a clock set back, is open."""
        if self._stored_at is None or now < self._stored_at:
            return now
        age = self._stored_at - self._started_at
        return max(now, self._stored_at + max(WINDOW, age // LONG_RUN))

    def take(self, now: int, *, last: bool = False) -> Report | None:
        """Take what waits, if its window is open or it is the last."""
        if self._waiting is None or not (last or self.due(now) == now):
            return None
        taken, self._waiting = self._waiting, None
        self._stored_at, self._is_on_its_way = now, True
        return taken

    def stored(self, at: int) -> None:
        """Begin the window of the report that was taken: it was stored at this instant."""
        if self._is_on_its_way:
            self._stored_at, self._is_on_its_way = at, False
