"""The lines that a run logs: so many at once, so many bytes in the long run.

Surplus lines are counted and dropped. Who goes on and on beyond that floods, and is to be stopped.
Pure: whoever calls says what time it is.
"""

from __future__ import annotations

from typing import Final

from perdure.actors.run.events import LogBatch, LogLine
from perdure.actors.run.output import readable
from perdure.eventlog.units import NANOSECONDS

MAX_LINES: Final = 200  # that wait; more in one flush are dropped and counted
MAX_LINE: Final = 2000  # characters of a line
MAX_LEVEL: Final = 32
MAX_LINE_BYTES: Final = 256 << 10  # that wait
BURST: Final = 8 << 20  # bytes that a run may log as fast as it likes
RATE: Final = 64 << 10  # bytes a second in the long run
FLOOD: Final = 64 << 20  # bytes that were dropped, less the rate: no log is meant to be that large


class LogLines:
    """Lines that wait, and how many bytes more may come."""

    def __init__(self, now: int) -> None:
        """Nothing was logged yet."""
        self._lines: list[LogLine] = []
        self._dropped = 0
        self._bytes = 0
        self._allowed = BURST
        self._excess = 0
        self._counted_at = now

    def __bool__(self) -> bool:
        """Whether any wait."""
        return bool(self._lines)

    @property
    def is_flood(self) -> bool:
        """Whether so much was dropped that nobody can mean it."""
        return self._excess > FLOOD

    def add(self, level: str, text: str, now: int) -> None:
        """Log a line, or drop and count it."""
        level, text = readable(level, "a level"), readable(text, "a log line")[:MAX_LINE]
        size = len(text) if text.isascii() else len(text.encode())
        self._allow_more(now)
        is_full = len(self._lines) >= MAX_LINES or self._bytes >= MAX_LINE_BYTES
        if is_full or size > self._allowed:
            self._dropped += 1
            self._excess += size
            return
        self._bytes += size
        self._allowed -= size
        self._lines.append(LogLine(level=level[:MAX_LEVEL], text=text, at=now))

    def take(self, now: int, *, last: bool = False) -> LogBatch | None:
        """Take the lines that wait, with how many were dropped; that alone only at the end."""
        if not self._lines and not (last and self._dropped):
            return None
        batch = LogBatch(lines=tuple(self._lines), dropped=self._dropped, at=now)
        self._lines, self._dropped, self._bytes = [], 0, 0
        return batch

    def _allow_more(self, now: int) -> None:
        grown = (now - self._counted_at) * RATE // NANOSECONDS
        if grown > 0:
            self._counted_at = now
            self._allowed = min(BURST, self._allowed + grown)
            self._excess = max(0, self._excess - grown)
