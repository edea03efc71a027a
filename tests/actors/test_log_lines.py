from __future__ import annotations

from perdure.actors.run.events import LogBatch, LogLine
from perdure.actors.run.history import History
from perdure.actors.run.log_lines import BURST, FLOOD, RATE, LogLines
from perdure.actors.run.outbox import Outbox

SECOND = 1_000_000_000
LINE = "x" * 1024


def logged(lines: LogLines, size: int, now: int) -> int:
    """Log so many bytes, in lines that are taken as they come; give how many were kept."""
    kept = 0
    for _ in range(size // len(LINE)):
        lines.add("info", LINE, now)
        if (batch := lines.take(now)) is not None:
            kept += sum(len(line.text) for line in batch.lines)
    return kept


def test_lines_are_taken_once_with_what_was_dropped() -> None:
    """And there is nothing to take when none was logged."""
    lines = LogLines(0)
    assert not lines
    assert lines.take(1) is None
    lines.add("info", "a", 1)
    assert lines
    line = LogLine(level="info", text="a", at=1)
    assert lines.take(2) == LogBatch(lines=(line,), dropped=0, at=2)
    assert lines.take(3, last=True) is None


def test_a_run_may_log_much_at_once_and_little_in_the_long_run() -> None:
    """What it does not use it may use later, up to a bound."""
    lines = LogLines(0)
    assert logged(lines, 2 * BURST, 0) == BURST
    assert logged(lines, 10 * RATE, SECOND) == RATE
    assert logged(lines, 10 * RATE, 3 * SECOND) == 2 * RATE
    assert logged(lines, 2 * BURST, 1_000_000 * SECOND) == BURST


def test_moments_that_are_too_short_to_count_are_not_lost() -> None:
    """Many of them allow a line in the end."""
    lines = LogLines(0)
    logged(lines, 2 * BURST, 0)
    step = SECOND // RATE // 2  # allows half a byte
    last = 3 * len(LINE) + 3
    for number in range(last):
        lines.add("info", "", number * step)
        lines.take(0)
    assert logged(lines, len(LINE), last * step) == len(LINE)


def test_a_clock_that_goes_back_allows_nothing_and_takes_nothing_away() -> None:
    """Wall time is data."""
    lines = LogLines(10 * SECOND)
    assert logged(lines, 2 * BURST, 0) == BURST
    assert logged(lines, RATE, 5 * SECOND) == 0


def test_who_logs_without_end_floods() -> None:
    """Not who logs much for a while, nor who logs a little too much for long."""
    lines = LogLines(0)
    seen = []
    for size, now in ((BURST + FLOOD, 0), (len(LINE), 0), (len(LINE), SECOND)):
        logged(lines, size, now)
        seen.append(lines.is_flood)
    assert seen == [False, True, False]
    steady = LogLines(0)
    for second in range(3000):
        logged(steady, 2 * RATE, second * SECOND)
    assert not steady.is_flood


def test_what_was_dropped_is_told_at_the_end() -> None:
    """Also if nothing was kept since."""
    lines = LogLines(0)
    logged(lines, BURST, 0)
    lines.add("info", LINE, 0)
    lines.add("info", LINE, 0)
    assert lines.take(0) is None
    assert lines.take(7, last=True) == LogBatch(lines=(), dropped=2, at=7)
    assert lines.take(8, last=True) is None


def test_an_outbox_tells_it_at_its_end() -> None:
    """Not before, when lines may still come to go with it."""
    box = Outbox(History(), 0)
    for _ in range(BURST // len(LINE) + 1):
        box.log("info", LINE, 0)
        box.take(0)
    assert box.take(1) == ()
    assert box.take(2, last=True) == (LogBatch(lines=(), dropped=1, at=2),)
