"""The run that code works for: what its tasks and threads log and print is of that run.

Which run that is follows the task, and every thread that is started from it. A line is logged in
the event loop; from a thread it is brought there soon, and the thread never waits.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trio.lowlevel import TrioToken

    from perdure.runtime.secrets.redaction import Redactor

MAX_WAITING: Final = 1000  # lines of threads on their way to the loop; more are dropped and told
LONGEST: Final = 8192  # characters of a line that is printed; the rest of it is dropped


class LoggedRun:
    """The run that a task works for, as far as logging is concerned."""

    def __init__(
        self,
        run_id: str,
        trace_id: str | None = None,
        redactor: Redactor | None = None,
        line: Callable[[str, str], None] | None = None,
        loop: TrioToken | None = None,
    ) -> None:
        """``line`` logs a line of the run, by level and text, in ``loop``; without it none can."""
        self.run_id = run_id
        self.trace_id = trace_id
        self.redactor = redactor
        self._line = line
        self._loop = loop
        self._waiting: deque[tuple[str, str]] = deque()  # lines of threads; see MAX_WAITING
        self._dropped = 0
        self._printed: dict[tuple[str, int], str] = {}  # not yet a line, by level and thread

    @property
    def has_lines(self) -> bool:
        """Whether this is the entry's own work, and what it says is logged."""
        return self._line is not None

    def log(self, level: str, text: str) -> None:
        """Log a line of the run: from its tasks at once, from its threads soon."""
        if self._line is None:
            return
        import trio  # noqa: PLC0415 - who only reads runs has no event loop

        if trio.lowlevel.in_trio_run():
            self._bring()
            self._line(level, text)
        elif self._loop is not None:
            if len(self._waiting) < MAX_WAITING:
                self._waiting.append((level, text))
            else:
                self._dropped += 1
            with suppress(trio.RunFinishedError):
                self._loop.run_sync_soon(self._bring, idempotent=True)

    def print(self, level: str, text: str) -> None:
        """Log what was printed, line by line; what is no whole line yet waits for the rest."""
        key = level, threading.get_ident()
        *lines, rest = (self._printed.pop(key, "") + text).split("\n")
        for line in lines:
            self._log_printed(level, line)
        if rest:
            self._printed[key] = rest[:LONGEST]

    def flush(self) -> None:
        """Log, in the event loop, all that was said so far."""
        self._bring()
        for key in list(self._printed):
            self._log_printed(key[0], self._printed.pop(key, ""))

    def _log_printed(self, level: str, line: str) -> None:
        if len(line) >= LONGEST:
            line = line[:LONGEST]
            if self.redactor is not None:
                line = self.redactor.beginning(line)
        self.log(level, line)

    def _bring(self) -> None:
        if self._line is None:
            return
        while self._waiting:
            self._line(*self._waiting.popleft())
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._line("warning", f"{dropped} more lines of threads were dropped")


_current: Final[ContextVar[LoggedRun | None]] = ContextVar("perdure_run", default=None)
_at_work: Final[dict[str, LoggedRun]] = {}  # whose entries are being executed here


def current_run() -> LoggedRun | None:
    """Give the run that this task or thread works for."""
    return _current.get()


def work_for(run: LoggedRun | None) -> None:
    """Let this task or thread, and those it starts from now on, work for a run."""
    _current.set(run)


@contextmanager
def working_for(run: LoggedRun | None) -> Iterator[None]:
    """Work for a run for the length of a block."""
    token = _current.set(run)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def entry_at_work(run: LoggedRun) -> Iterator[None]:
    """Let this task work for a run from now on; for the length of a block its entry does, too."""
    work_for(run)
    _at_work[run.run_id] = run
    try:
        yield
    finally:
        run.flush()
        if _at_work.get(run.run_id) is run:  # and not the activation that took over
            del _at_work[run.run_id]


def redactors_at_work() -> Iterator[Redactor]:
    """Give what knows the secrets of each entry at work, for what is said for no run."""
    for run in tuple(_at_work.values()):
        if run.redactor is not None and run.redactor.knows_values:
            yield run.redactor


def without_secrets(text: str) -> str:
    """Take the secrets of all entries at work out of a text that is said for no run."""
    for redactor in redactors_at_work():
        text = redactor.text(text)
    return text


@contextmanager
def about_run(run_id: str | None, trace_id: str | None = None) -> Iterator[None]:
    """Speak of a run for the length of a block, without its entry having a part in it."""
    around = _current.get()
    redactor = around.redactor if around else None
    with working_for(around if run_id is None else LoggedRun(run_id, trace_id, redactor)):
        yield
