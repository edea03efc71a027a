"""The lines that a server logs: for people on a terminal, as JSON elsewhere."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

_KNOWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonLines(logging.Formatter):
    """A record as one object: `time`, `level`, `logger`, `message`, and what else it carries."""

    def format(self, record: logging.LogRecord) -> str:
        """Give a line."""
        line: dict[str, Any] = {
            "time": _time(record).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in sorted(vars(record).keys() - _KNOWN):
            line[name] = getattr(record, name)
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            line["traceback"] = record.exc_text
        return msgspec.json.encode(line, enc_hook=repr).decode()


class TextLines(logging.Formatter):
    """A record as people read it: when, how bad, what, and of which run."""

    def format(self, record: logging.LogRecord) -> str:
        """Give a line, and a traceback below it if there is one."""
        when = _time(record).astimezone().strftime("%H:%M:%S")
        run = f"  [{run_id}]" if (run_id := getattr(record, "run_id", None)) else ""
        line = f"{when} {record.levelname.lower():7} {record.getMessage()}{run}"
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        return f"{line}\n{record.exc_text}" if record.exc_text else line


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


@contextmanager
def logging_to(stream: TextIO = sys.stderr, level: int = logging.INFO) -> Iterator[None]:
    """Log to a stream for the length of a block."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextLines() if stream.isatty() else JsonLines())
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
