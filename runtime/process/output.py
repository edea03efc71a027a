"""What a process prints: bytes on their way to becoming log lines."""

from __future__ import annotations

from typing import Final, NamedTuple

LONGEST: Final = 64 << 10  # bytes of a line; what comes after them, up to its end, is dropped


class Line(NamedTuple):
    """A line, or the beginning of one that is too long."""

    text: str
    is_cut: bool


class Output:
    """Cuts bytes into lines, and never holds more than the longest one."""

    def __init__(self, longest: int = LONGEST) -> None:
        """Start at the beginning of a line."""
        self._longest = longest
        self._rest = bytearray()
        self._is_cut = False

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
        self._is_cut |= len(part) > room
        self._rest += part[:room]

    def _take(self) -> Line:
        line = Line(self._rest.decode("utf-8", "replace"), self._is_cut)
        self._rest, self._is_cut = bytearray(), False
        return line
