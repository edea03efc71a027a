"""Bytes from a process on their way to becoming lines: messages, or what it has printed."""

from __future__ import annotations

from typing import Literal, NamedTuple

from perdure.runtime.process.messages import Malformed


class Line(NamedTuple):
    """A line, or the beginning of one that is too long."""

    data: bytes
    is_cut: bool = False

    @property
    def text(self) -> str:
        """The line as people read it."""
        return self.data.decode("utf-8", "replace")


class LineSplitter:
    """Cuts bytes into lines, and never holds more than the longest one.

    However a line trickles in, each byte is looked at once.
    """

    def __init__(self, longest: int, *, too_long: Literal["refuse", "cut"]) -> None:
        """Start at the beginning of a line. One that is too long is refused, or loses its end."""
        self._longest = longest
        self._refuses = too_long == "refuse"
        self._rest = bytearray()  # of a line that is not complete
        self._is_cut = False

    @property
    def is_within_a_line(self) -> bool:
        """Whether some of a line has come, and not its end."""
        return bool(self._rest)

    def feed(self, data: bytes | bytearray) -> list[Line]:
        """Take bytes; give the lines that are complete now."""
        *ends, rest = bytes(data).split(b"\n")
        lines = []
        for end in ends:
            self._add(end)
            lines.append(self._take())
        self._add(rest)
        return lines

    def take_rest(self) -> list[Line]:
        """Give what has come of a line that nobody will complete."""
        return [self._take()] if self._rest else []

    def _add(self, part: bytes) -> None:
        room = self._longest - len(self._rest)
        if len(part) > room:
            if self._refuses:
                raise Malformed(f"a line of more than {self._longest} bytes")
            self._is_cut = True
        self._rest += part[:room]

    def _take(self) -> Line:
        line = Line(bytes(self._rest), self._is_cut)
        self._rest.clear()
        self._is_cut = False
        return line
