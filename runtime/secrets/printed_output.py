"""What entries print in the process of their host becomes lines in the logs of their runs.

That are standard output and error, as Python's own code writes them: ``print``, warnings, and
what is told of an exception that ends a thread. What another part of the process prints goes where
it always goes, without the secrets of the runs that are at work. Bytes that are written to the
descriptors themselves, by a library in C or a program that an entry starts, are not seen here.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from perdure.runtime.secrets.logged_run import current_run, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LEVELS: Final = {"stdout": "info", "stderr": "warning"}  # as for entries in processes


class _Printed:
    """A standard stream, of which the part that entries print is taken for their runs."""

    def __init__(self, stream: TextIO, level: str) -> None:
        self.stream = stream
        self._level = level

    def write(self, text: str) -> int:
        """Write a text, or log it for the run that prints it."""
        run = current_run()
        if run is None or not run.has_lines:
            return self.stream.write(without_secrets(text))
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        run.print(self._level, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write one after the other."""
        for line in lines:
            self.write(line)

    def close(self) -> None:
        """Stay open: an entry cannot close the stream of its host."""

    @property
    def buffer(self) -> Any:  # noqa: ANN401 - as the stream has it
        """The same for bytes."""
        run = current_run()
        return self.stream.buffer if run is None or not run.has_lines else _PrintedBytes(self)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self.stream, name)


class _PrintedBytes:
    """The bytes of a standard stream."""

    def __init__(self, printed: _Printed) -> None:
        self._printed = printed

    def write(self, data: bytes) -> int:
        """Log bytes as text."""
        self._printed.write(bytes(data).decode("utf-8", "replace"))
        return len(data)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self._printed.stream.buffer, name)


class _Installation:
    """What is changed in the process while hosts execute entries in it, however many."""

    def __init__(self) -> None:
        self._hosts = 0
        self._printed: dict[str, _Printed] = {}

    def begin(self) -> None:
        self._hosts += 1
        if self._hosts > 1:
            return
        for name, level in LEVELS.items():
            stream = getattr(sys, name)
            if stream is not None:  # it was closed when the process started
                self._printed[name] = _Printed(stream, level)
                setattr(sys, name, cast("TextIO", self._printed[name]))

    def end(self) -> None:
        self._hosts -= 1
        if self._hosts:
            return
        for name, printed in self._printed.items():
            if getattr(sys, name) is printed:  # and nobody has put another in its place
                setattr(sys, name, printed.stream)
        self._printed.clear()


_installation: Final = _Installation()


@contextmanager
def output_of_runs() -> Iterator[None]:
    """Give runs what their entries print, for the length of a block."""
    _installation.begin()
    try:
        yield
    finally:
        _installation.end()
