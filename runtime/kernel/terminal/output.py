"""Standard output and standard error whose reader may leave: `perdure runs | head -1`.

A command that only reads ends, by SIGPIPE, as other programs do. One that executes runs goes on
without output: the run must not be lost because its reader is.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import ReadableBuffer


class _DroppingFile(io.FileIO):
    """A file that drops what cannot be written: its reader is gone, its disk is full."""

    def write(self, data: ReadableBuffer) -> int:
        """Write as much as can be written; tell that all of it was, if nothing can."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


@contextmanager
def best_effort_output() -> Iterator[None]:
    """Drop what cannot be written to standard output and error, for the length of a block."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_dropping(stream) for stream in before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


def _dropping(stream: TextIO | None) -> TextIO:
    if stream is None:  # it was closed when this process started
        return Path(os.devnull).open("w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    try:
        file = _DroppingFile(stream.fileno(), "wb", closefd=False)
    except OSError:  # in memory
        return stream
    stream.flush()
    is_unbuffered = isinstance(stream.buffer, io.RawIOBase)
    return io.TextIOWrapper(
        file if is_unbuffered else io.BufferedWriter(file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def end_by_sigpipe() -> NoReturn:
    """End this process as any program whose output nobody reads any more."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.raise_signal(signal.SIGPIPE)
    os._exit(128 + signal.SIGPIPE)  # where it is blocked
