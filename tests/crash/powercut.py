"""Power cuts: record what programs do to a directory, then cut the power anywhere in between.

A ``Recording`` runs programs under strace and keeps every change to the files and names in one
directory as a line of moments. ``cuts`` goes along that line with a ``Disk`` and gives, for chosen
moments, a state of the directory that a power cut could have left, with what the program had said
by then: whatever it wrote to its witness file.

This module knows nothing of what is in the files: it serves databases, blobs and whatever comes.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from tests.crash.disk import TOP, Change, Disk, Moment, Name, Node, Truncate, What, Write
from tests.crash.strace import Call, Strace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SYNCS: Final = ("fsync", "fdatasync")
_NAMING: Final = frozenset(
    {
        *("openat", "mkdir", "mkdirat", "unlink", "unlinkat"),
        *("rename", "renameat", "renameat2", "link", "linkat"),
    }
)
Event = Change | Node | bytes  # a change, a file or directory being synced, a text being said


class Unmodelled(Exception):
    """The program did something to the directory that this module does not understand."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One power cut: what the disk holds, and what the program had said by then."""

    number: int
    place: int
    files: dict[PurePath, bytes]
    said: Sequence[bytes]

    def write_to(self, directory: Path) -> None:
        """Make a directory look like the disk."""
        for path, content in self.files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(content)


class Recording:
    """What programs, run one after the other, did to a directory that was empty before.

    ``without`` names files that mean nothing after a power cut, as shell patterns.
    """

    def __init__(self, directory: Path, witness: Path, without: Sequence[str] = ()) -> None:
        assert not any(directory.iterdir())
        self.moments: list[Moment] = []
        self._reader = _Reader(directory, witness)
        self._without = without
        self._calls = 0

    def run(self, command: Sequence[str], trace: Path, *, inject: str | None = None) -> int:
        """Run a program to its end and take in what it did; give its exit status.

        Its standard input stays open as long as this process lives, and says nothing.
        """
        strace = Strace(trace)
        traced = [*strace.command(_Reader.CALLS, inject=inject), *command]
        with subprocess.Popen(traced, stdin=subprocess.PIPE) as process:
            code = process.wait()
        self.take_in(strace.calls())
        return code

    def take_in(self, calls: Sequence[Call]) -> None:
        """Turn a program's calls into moments."""
        self._reader.begin_program()
        timed: list[tuple[int, Moment]] = []
        over = max((call.ended or call.began for call in calls), default=0) + 1
        for call in calls:
            for event in self._reader.read(call):
                self._calls += 1
                timed.extend(_moments(call, self._calls, event, over))
        self.moments.extend(moment for _, moment in sorted(timed, key=lambda entry: entry[0]))

    def cuts(self, count: int, seed: int, *, first: int = 0) -> Iterator[Cut]:
        """Cut the power ``count`` times, at moments after the ``first``, in their order."""
        rng = random.Random(seed)
        places = sorted(rng.randrange(first, len(self.moments) + 1) for _ in range(count))
        disk, here = Disk(rng), 0
        for number, place in enumerate(places):
            while here < place:
                disk.take(self.moments[here])
                here += 1
            found = disk.after_cut(random.Random(f"{seed}/{number}"))
            yield Cut(number, place, self._meaningful(found), tuple(disk.said))

    def _meaningful(self, files: dict[PurePath, bytes]) -> dict[PurePath, bytes]:
        return {
            path: content
            for path, content in files.items()
            if not any(fnmatch(path.name, pattern) for pattern in self._without)
        }


class _Reader:
    """Reads system calls as changes, with the program's eyes: paths, descriptors, offsets."""

    CALLS: Final = (
        *("openat", "pwrite64", "write", "lseek", "fdatasync", "fsync", "ftruncate"),
        *("unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "linkat"),
        *("mkdir", "mkdirat"),
        # Not understood, and refused where they touch the directory:
        *("open", "creat", "truncate", "rmdir", "fallocate", "writev", "pwritev", "pwritev2"),
        *("copy_file_range", "sendfile", "symlink", "symlinkat"),
    )

    def __init__(self, top: Path, witness: Path) -> None:
        self._top = top
        self._witness = witness
        self._live = {top: TOP}
        self._sizes: dict[Node, int] = {}
        self.begin_program()

    def begin_program(self) -> None:
        """Forget the descriptors of the program before."""
        self._opening: list[tuple[int, int, Node, int | None]] = []  # opened once this line came
        self._open: dict[int, Node] = {}
        self._offsets: dict[int, int | None] = {}  # None: always at the end

    def read(self, call: Call) -> Iterator[Event]:
        """Give what a call changes."""
        self._open_what_returned_before(call.began)
        if call.failed and call.name not in _SYNCS:
            return
        if call.ended is None and call.name in _NAMING and not self._happened(call):
            return
        match call.name:
            case "openat":
                yield from self._opened(call)
            case "write" | "pwrite64":
                yield from self._written(call)
            case "lseek" | "fsync" | "fdatasync" | "ftruncate":
                yield from self._on_descriptor(call)
            case "rename" | "renameat" | "renameat2" | "link" | "linkat":
                yield from self._linked(call, moved=call.name.startswith("rename"))
            case "unlink" | "unlinkat" | "mkdir" | "mkdirat":
                yield from self._named(call, made=call.name.startswith("mkdir"))
            case _:
                if any(self._is_ours(path) for path in call.paths):
                    raise Unmodelled(call.name, call.arguments[:200])

    def _happened(self, call: Call) -> bool:
        """Tell whether a call in which the program died has done its work: the directory knows."""
        path = call.named_paths[-1]
        return path.exists() != call.name.startswith("unlink")

    def _is_ours(self, path: Path) -> bool:
        return path.is_relative_to(self._top)

    def _opened(self, call: Call) -> Iterator[Event]:
        (path,) = call.named_paths
        if not self._is_ours(path):
            return
        flags = call.arguments.rsplit('"', 1)[1]
        node = self._live.get(path)
        if node is None:
            node = self._new_node(is_directory=False)
            yield self._name(path, node)
        elif "O_TRUNC" in flags:
            yield self._resized(call, node, path, 0)
        if call.result is not None and call.ended is not None:
            offset = None if "O_APPEND" in flags else 0
            self._opening.append((call.ended, call.result, node, offset))

    def _open_what_returned_before(self, began: int) -> None:
        """Let descriptors mean what they mean to a call that begins at this line.

        One that another thread is just opening may still be, under that number, an older file.
        """
        for opening in sorted(self._opening, key=lambda opening: opening[0]):
            ended, fd, node, offset = opening
            if ended < began:
                self._open[fd], self._offsets[fd] = node, offset
                self._opening.remove(opening)

    def _written(self, call: Call) -> Iterator[Event]:
        fd, path = call.descriptor
        data = call.texts[0][: call.result]
        if path == self._witness:
            yield data
        if not self._is_ours(path):
            return
        node = self._open[fd]
        if call.name == "pwrite64":
            offset = call.last_number
        else:
            here = self._offsets[fd]
            offset = self._sizes[node] if here is None else here
            self._offsets[fd] = None if here is None else here + len(data)
        if call.ended is None:
            data = _found(path)[offset : offset + len(data)]
        if not data:
            return
        self._sizes[node] = max(self._sizes[node], offset + len(data))
        yield Write(node, offset, data)

    def _resized(self, call: Call, node: Node, path: Path, size: int) -> Truncate:
        self._sizes[node] = len(_found(path)) if call.ended is None else size
        return Truncate(node, self._sizes[node])

    def _on_descriptor(self, call: Call) -> Iterator[Event]:
        fd, path = call.descriptor
        if not self._is_ours(path):
            return
        node = self._open[fd]
        if call.name == "ftruncate":
            yield self._resized(call, node, path, call.last_number)
        elif call.name == "lseek":
            if self._offsets[fd] is not None:
                self._offsets[fd] = call.result
        else:
            yield node

    def _linked(self, call: Call, *, moved: bool) -> Iterator[Event]:
        old, new = call.named_paths
        if not self._is_ours(old) and not self._is_ours(new):
            return
        if old not in self._live:
            raise Unmodelled(call.name, str(old), str(new))
        node = self._live.pop(old) if moved else self._live[old]
        if not moved or old.parent == new.parent:
            yield self._name(new, node, was=old.name if moved else None)
            return
        # Two directories, each with its own sync: after a cut both names may be there, or neither.
        yield self._name(new, node)
        yield Name(self._live[old.parent], old.name, None)

    def _named(self, call: Call, *, made: bool) -> Iterator[Event]:
        (path,) = call.named_paths
        if not self._is_ours(path):
            return
        if made:
            yield self._name(path, self._new_node(is_directory=True))
        else:
            self._live.pop(path)
            yield Name(self._live[path.parent], path.name, None)

    def _name(self, path: Path, node: Node, was: str | None = None) -> Name:
        self._live[path] = node
        return Name(self._live[path.parent], path.name, node, was)

    def _new_node(self, *, is_directory: bool) -> Node:
        node = Node(len(self._sizes) + 1, is_directory)
        self._sizes[node] = 0
        return node


def _moments(call: Call, number: int, event: Event, over: int) -> Iterator[tuple[int, Moment]]:
    """Place an event in time, by the lines of the trace; its program has ended at ``over``."""
    if isinstance(event, bytes):
        yield call.began, Moment(What.SAID, number, text=event)
        return
    if isinstance(event, Node):
        end = What.SYNC_FAILED if call.failed else What.SYNC_ENDED
        yield call.began, Moment(What.SYNC_BEGUN, number, node=event)
    else:
        end = What.ENDED
        yield call.began, Moment(What.BEGUN, number, change=event)
    if call.ended is not None:
        yield call.ended, Moment(end, number)
    elif end is What.ENDED:
        yield over, Moment(end, number)  # the program died in it; the event is what it had done


def _found(path: Path) -> bytes:
    """What a program that died in a call has left in the file: no more comes to it."""
    return path.read_bytes() if path.exists() else b""
