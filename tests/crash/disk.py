"""A disk with a volatile cache: what is durable, what is on its way, what a power cut leaves.

What was synced is durable. What was not may be there or not after a cut: nothing of it, the first
part, any part, torn at sectors. A name (created, renamed, removed) is durable once its directory
was synced, and no sooner. A sync counts from its return, and for what had returned before it
began; a write counts from its beginning. After a failed sync nobody knows what of it is there, and
no later sync helps: the kernel takes the pages for clean.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

SECTOR: Final = 512


class Node(NamedTuple):
    """A file or a directory, whatever its name is at the moment."""

    number: int
    is_directory: bool


TOP: Final = Node(0, is_directory=True)


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes for a file."""

    node: Node
    offset: int
    data: bytes

    def sectors(self) -> Iterator[Write]:
        """Cut it where the disk's sectors end."""
        start = 0
        while start < len(self.data):
            end = start + SECTOR - (self.offset + start) % SECTOR
            yield Write(self.node, self.offset + start, self.data[start:end])
            start = end


@dataclass(frozen=True, slots=True)
class Truncate:
    """A new size for a file."""

    node: Node
    size: int


@dataclass(frozen=True, slots=True)
class Name:
    """A directory's entry: a new one, one replaced, or (no target) one removed.

    ``was`` is the name in the same directory that goes at the same instant: a rename.
    """

    node: Node
    name: str
    target: Node | None
    was: str | None = None


Change = Write | Truncate | Name


class Fate(Enum):
    """What a power cut leaves of the changes to one file or directory that were not synced."""

    NOTHING = auto()
    PREFIX = auto()
    SUBSET = auto()
    TORN = auto()
    EVERYTHING = auto()

    def choose(self, changes: Sequence[Change], rng: random.Random) -> Sequence[Change]:
        """Pick the changes that reached the disk."""
        match self:
            case Fate.NOTHING:
                return []
            case Fate.PREFIX:
                length = rng.randrange(len(changes) + 1)
                return [*changes[:length], *_some_sectors(changes[length : length + 1], rng)]
            case Fate.SUBSET:
                return [change for change in changes if rng.random() < 0.5]
            case Fate.TORN:
                return _some_sectors(changes, rng)
            case Fate.EVERYTHING:
                return changes


class Platter:
    """Contents and names, as they are."""

    def __init__(self) -> None:
        self._files: dict[Node, bytearray] = {}
        self._names: dict[Node, dict[str, Node]] = {}

    def copy(self) -> Platter:
        """Give one that goes its own way from here."""
        copy = Platter()
        copy._files = {node: bytearray(content) for node, content in self._files.items()}
        copy._names = {node: dict(entries) for node, entries in self._names.items()}
        return copy

    def apply(self, changes: Sequence[Change]) -> None:
        """Take changes in."""
        for change in changes:
            match change:
                case Write(node, offset, data):
                    content = self._files.setdefault(node, bytearray())
                    content.extend(bytes(max(0, offset - len(content))))
                    content[offset : offset + len(data)] = data
                case Truncate(node, size):
                    content = self._files.setdefault(node, bytearray())
                    del content[size:]
                    content.extend(bytes(size - len(content)))
                case Name(node, name, target, was):
                    entries = self._names.setdefault(node, {})
                    entries.pop(was or name, None)
                    if target is not None:
                        entries[name] = target

    def walk(self, top: Node = TOP) -> Iterator[tuple[PurePath, bytes]]:
        """Go through the files that have a name."""
        for name, node in self._names.get(top, {}).items():
            if node.is_directory:
                yield from ((name / path, content) for path, content in self.walk(node))
            else:
                yield PurePath(name), bytes(self._files.get(node, b""))


class What(Enum):
    """What happens at a moment."""

    BEGUN = auto()  # a change may reach the disk from now on
    ENDED = auto()  # a sync that begins from now on covers it
    SYNC_BEGUN = auto()
    SYNC_ENDED = auto()
    SYNC_FAILED = auto()
    SAID = auto()  # the program told somebody something


@dataclass(frozen=True, slots=True)
class Moment:
    """One step in the life of a disk. ``call`` ties a call's beginning and end together."""

    what: What
    call: int
    change: Change | None = None
    node: Node = TOP
    text: bytes = b""


@dataclass(slots=True)
class _Unsynced:
    """A change on its way to the disk."""

    change: Change
    ended: bool = False


class Disk:
    """A disk at a moment: what is durable, and what is on its way."""

    def __init__(self, rng: random.Random) -> None:
        self.said: list[bytes] = []
        self._rng = rng
        self._durable = Platter()
        self._unsynced: dict[Node, dict[int, _Unsynced]] = defaultdict(dict)
        self._begun: dict[int, _Unsynced] = {}
        self._syncing: dict[int, tuple[Node, list[int]]] = {}

    def take(self, moment: Moment) -> None:
        """Go one moment further."""
        match moment.what:
            case What.BEGUN:
                assert moment.change is not None
                unsynced = _Unsynced(moment.change)
                self._unsynced[moment.change.node][moment.call] = unsynced
                self._begun[moment.call] = unsynced
            case What.ENDED:
                self._begun.pop(moment.call).ended = True
            case What.SYNC_BEGUN:
                waiting = self._unsynced[moment.node]
                covered = [call for call, unsynced in waiting.items() if unsynced.ended]
                self._syncing[moment.call] = moment.node, covered
            case What.SYNC_ENDED:
                self._durable.apply(self._covered(moment.call))
            case What.SYNC_FAILED:
                self._durable.apply(_some_sectors(self._covered(moment.call), self._rng))
            case What.SAID:
                self.said.append(moment.text)

    def after_cut(self, rng: random.Random) -> dict[PurePath, bytes]:
        """Give the files that might be found when the power comes back."""
        found = self._durable.copy()
        for waiting in self._unsynced.values():
            changes = [unsynced.change for unsynced in waiting.values()]
            found.apply(rng.choice(list(Fate)).choose(changes, rng))
        return dict(found.walk())

    def _covered(self, sync: int) -> list[Change]:
        """Take out what a sync that is over was to keep."""
        node, covered = self._syncing.pop(sync)
        waiting = self._unsynced[node]
        return [waiting.pop(call).change for call in covered if call in waiting]


def _some_sectors(changes: Sequence[Change], rng: random.Random) -> list[Change]:
    parts: list[Change] = []
    for change in changes:
        parts.extend(change.sectors() if isinstance(change, Write) else [change])
    return [part for part in parts if rng.random() < 0.7]
