"""What strace saw a program do: one ``Call`` for each system call, with where it began and ended.

strace writes a line when a call returns. If another thread comes in between, it writes the first
half (``<unfinished ...>``) and the second (``<... name resumed>``) apart. The numbers of those
lines are the only clock here: a call began before everything that ended after its first half.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

_LINE: Final = re.compile(r"(\d+)\s+(?:(\w+)\(|<\.\.\. (\w+) resumed>)(.*)", re.DOTALL)
_END: Final = re.compile(r"(.*)\)\s+= (-?\d+|\?)(<[^>]*>)?.*", re.DOTALL)
_UNFINISHED: Final = " <unfinished ...>"
_DESCRIPTOR: Final = re.compile(r"(?:AT_FDCWD|(-?\d+))<([^>]*)>")
_QUOTED: Final = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_ESCAPED: Final = re.compile(r"(?:\\x[0-9a-f]{2})+")
_LONGEST: Final = 1 << 24  # bytes of a buffer that strace prints


@dataclass(frozen=True)
class Call:
    """A system call of some thread. ``ended`` is None if the process died in it."""

    name: str
    arguments: str
    result: int | None
    began: int
    ended: int | None

    @cached_property
    def texts(self) -> Sequence[bytes]:
        """The quoted arguments: paths, or the data written."""
        return [_bytes(text) for text in _QUOTED.findall(self.arguments)]

    @property
    def named_paths(self) -> Sequence[Path]:
        """The paths given by name, seen from the descriptors before them."""
        bases = [path for _, path in self._descriptors]
        names = [Path(os.fsdecode(text)) for text in self.texts]
        if len(bases) < len(names):
            bases = [Path("/")] * len(names)  # calls without descriptors are given absolute paths
        return [base / name for base, name in zip(bases, names, strict=False)]

    @property
    def descriptor(self) -> tuple[int, Path]:
        """The number and the path of the open file that is the first argument."""
        number, path = self._descriptors[0] if self._descriptors else ("", Path())
        return int(number or -1), path

    @property
    def paths(self) -> Sequence[Path]:
        """All paths that the call touches, given by name or by descriptor."""
        return [*self.named_paths, *(path for _, path in self._descriptors)]

    @property
    def last_number(self) -> int:
        """The last argument: the offset of a pwrite64, the size of an ftruncate."""
        return int(self.arguments.rsplit(", ", 1)[1])

    @property
    def failed(self) -> bool:
        """Whether the call returned an error. A call that never returned may have worked."""
        return self.result is not None and self.result < 0

    @cached_property
    def _descriptors(self) -> Sequence[tuple[str, Path]]:
        found = _DESCRIPTOR.findall(self.arguments)
        return [(number, Path(os.fsdecode(_plain(path)))) for number, path in found]


class Strace:
    """strace, writing what a program does to a file."""

    def __init__(self, output: Path) -> None:
        self.output = output

    def command(
        self, calls: Iterable[str], *, inject: str | None = None, only: Path | None = None
    ) -> list[str]:
        """The words to put before a program's own command. ``only`` names the one file watched."""
        traced = ["-e", "trace=" + ",".join(calls)]
        # The filter in the kernel makes strace twice as fast, but lets no signal be injected.
        extra = ["--seccomp-bpf"] if inject is None else ["-e", f"inject={inject}"]
        place = [] if only is None else ["-P", str(only)]
        form = ["-f", "-qq", "-y", "-xx", "-s", str(_LONGEST)]
        return ["strace", *form, "-o", str(self.output), *traced, *extra, *place]

    def calls(self) -> list[Call]:
        """All calls, in the order in which they began."""
        with self.output.open(encoding="ascii") as lines:
            return sorted(parse(lines), key=lambda call: call.began)


def parse(lines: Iterable[str]) -> Iterator[Call]:
    """Put the halves of calls together."""
    open_calls: dict[str, tuple[int, str, str]] = {}
    for number, line in enumerate(lines):
        match = _LINE.fullmatch(line.rstrip("\n"))
        if match is None:
            continue  # a signal, or the end of a thread
        thread, begun, resumed, rest = match.groups()
        began, name, before = open_calls.pop(thread) if resumed else (number, begun, "")
        if rest.endswith(_UNFINISHED):
            open_calls[thread] = began, name, before + rest.removesuffix(_UNFINISHED)
        elif (end := _END.fullmatch(before + rest)) is not None:
            result = None if end[2] == "?" else int(end[2])
            yield Call(name, end[1], result, began, None if result is None else number)
    for began, name, arguments in open_calls.values():
        yield Call(name, arguments, None, began, None)


def _plain(text: str) -> bytes:
    return _ESCAPED.sub(lambda m: _bytes(m[0]).decode("latin-1"), text).encode("latin-1")


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))
