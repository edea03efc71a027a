"""Logging about runs: every record says of which run it speaks, and none has its secrets.

What an entry logs with the standard ``logging`` module, in its tasks or its threads, becomes a line
in the log of its run, besides going where it always goes. Secrets are taken out when a record is
made, before anybody sees it.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from perdure.runtime.secrets import run_threads
from perdure.runtime.secrets.logged_run import current_run, redactors_at_work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perdure.runtime.secrets.redaction import Redactor

OURS: Final = "perdure."  # loggers of Perdure itself, whose records are not the entry's lines
_KNOWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_formatter: Final = logging.Formatter()


class _RunHandler(logging.Handler):
    """The first handler of all: it names the run, and gives the run its lines."""

    def emit(self, record: logging.LogRecord) -> None:
        run = current_run()
        if run is None:
            if logging.root.handlers == [self] and logging.lastResort is not None:
                logging.lastResort.handle(record)  # as if this handler were not there
            return
        parts = record.__dict__
        if run.redactor is not None:
            for name in parts.keys() - _KNOWN:
                parts[name] = run.redactor.value(parts[name])
        parts.setdefault("run_id", run.run_id)
        if run.trace_id is not None:
            parts.setdefault("trace_id", run.trace_id)
        if not record.name.startswith(OURS):
            run.log(record.levelname.lower(), _text(record))


def _text(record: logging.LogRecord) -> str:
    """Give what a record says, with its traceback."""
    traceback = record.exc_text
    if record.exc_info and not traceback:
        traceback = _formatter.formatException(record.exc_info)
    return "\n".join(filter(None, (record.getMessage(), traceback, record.stack_info)))


def _redact(record: logging.LogRecord, redactor: Redactor) -> None:
    """Take secrets out of a record before anybody sees it."""
    try:
        message = record.getMessage()
    except Exception:  # noqa: BLE001 - whatever the formatting of a stranger's record raises
        message = f"{record.msg} {record.args!r}"
    record.msg, record.args = redactor.text(message), None
    if record.exc_info and record.exc_info[0] is not None:
        record.exc_text = redactor.text(_formatter.formatException(record.exc_info))
        record.exc_info = None  # it holds the exception itself
    if record.stack_info is not None:
        record.stack_info = redactor.text(record.stack_info)


class _Installation:
    """What is changed in the process while hosts run, however many."""

    def __init__(self) -> None:
        self._hosts = 0
        self._handler = _RunHandler()
        self._factory: Callable[..., logging.LogRecord] = logging.LogRecord
        self._lowered = False

    def begin(self) -> None:
        self._hosts += 1
        if self._hosts > 1:
            return
        self._factory = logging.getLogRecordFactory()
        logging.setLogRecordFactory(self._make)
        run_threads.install()
        logging.root.handlers.insert(0, self._handler)
        self._lowered = logging.root.level == logging.WARNING  # which is what nobody has set
        if self._lowered:
            logging.root.setLevel(logging.INFO)

    def end(self) -> None:
        self._hosts -= 1
        if self._hosts:
            return
        logging.setLogRecordFactory(self._factory)
        run_threads.uninstall()
        logging.root.removeHandler(self._handler)
        if self._lowered and logging.root.level == logging.INFO:
            logging.root.setLevel(logging.WARNING)

    def _make(self, *args: Any, **more: Any) -> logging.LogRecord:
        record = self._factory(*args, **more)
        run = current_run()
        if run is None or run.redactor is None:
            for redactor in redactors_at_work():  # a thread that nobody knows may be an entry's
                _redact(record, redactor)
        elif run.redactor.knows_values:
            _redact(record, run.redactor)
        return record


_installation: Final = _Installation()


@contextmanager
def logging_of_runs() -> Iterator[None]:
    """Make records and threads know their runs, for the length of a block."""
    _installation.begin()
    try:
        yield
    finally:
        _installation.end()
