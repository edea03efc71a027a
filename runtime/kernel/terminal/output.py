"""Standard output and standard error when they cannot be written: `perdure runs | head -1`.

A command that only reads the log ends by SIGPIPE, like other programs; if it is another trouble, a
full disk for example, the error names the output. A command that executes runs continues without
output, so that a closed pipe does not stop a run.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import ReadableBuffer


STANDARD_OUTPUT: Final = "standard output"  # the name of a file in errors about it


class _NamedFile(io.FileIO):
    """Standard output, which errors tell from files of the log."""

    def write(self, data: ReadableBuffer) -> int:
        """Write data, or raise an error that names the output."""
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, STANDARD_OUTPUT) from None


class _DroppingFile(io.FileIO):
    """A file that discards data it cannot write: its reader is gone, or its disk is full."""

    def write(self, data: ReadableBuffer) -> int:
        """Write data; if that fails, report it as written."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def name_output() -> None:
    """Let errors in writing standard output name it."""
    if sys.stdout is not None:
        sys.stdout = _through(_NamedFile, sys.stdout)


@contextmanager
def best_effort_output() -> Iterator[None]:
    """Discard output that cannot be written, during a ``with`` block."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_dropping(stream) for stream in before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


def _dropping(stream: TextIO | None) -> TextIO:
    if stream is None:  # the file descriptor was closed when this process started
        return Path(os.devnull).open("w", encoding="utf-8")
    return _through(_DroppingFile, stream)


def _through(kind: type[io.FileIO], stream: TextIO) -> TextIO:
    """Give a stream that writes to the same place through another kind of file."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    try:
        file = kind(stream.fileno(), "wb", closefd=False)
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
    """End this process by SIGPIPE, like any program whose output pipe is closed."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.raise_signal(signal.SIGPIPE)
    os._exit(128 + signal.SIGPIPE)  # SIGPIPE is blocked
