"""A large log, and its twin: the same event bodies in the bare recorder of the library.

Records of many scopes lie mixed: every tenth belongs to one busy scope, ten in all to a small one.
Both files are made once for each size and kept for all measurements of a run.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import trio
from eventsourcing.persistence import StoredEvent

from perdure.eventlog import Append, StreamWrite
from tools.bench.recorder import open_recorder
from tools.bench.workload import new_events, opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from perdure.eventlog import NewEvent
    from tools.bench.benchmark import Setting

RECORDS: Final = 100_000
LEAST_RECORDS: Final = 1000
SMALL_SCOPE_RECORDS: Final = 10
BUSY_SCOPE: Final = "session/busy"
SMALL_SCOPE: Final = "session/small"
_SCOPES: Final = 997
_BUSY_EVERY: Final = 10
_PER_COMMIT: Final = 100


def large_log(setting: Setting) -> Path:
    """Give the log of the full size, scaled."""
    return _log_of(setting.directory, setting.size(RECORDS, LEAST_RECORDS))


def small_log(setting: Setting) -> Path:
    """Give a log of a hundredth of the full size, for what should not depend on the size."""
    return _log_of(setting.directory, LEAST_RECORDS)


def twin(setting: Setting) -> Path:
    """Give the recorder's file with the bodies of the large log; scopes are its streams."""
    return _twin_of(setting.directory, setting.size(RECORDS, LEAST_RECORDS))


def _log_of(directory: Path, records: int) -> Path:
    """Give the log of a size; make it if there is none."""
    path = directory / f"log-{records}.db"
    if not path.exists():
        trio.run(_fill, path, records)
    return path


async def _fill(path: Path, records: int) -> None:
    """Append all records, in some commits each, so that commit times differ."""
    versions: Counter[str] = Counter()
    async with opened(path) as log:
        for scopes, events in _portions(records):
            writes: dict[str, list[NewEvent]] = {}
            for scope, event in zip(scopes, events, strict=True):
                writes.setdefault(scope, []).append(event)
            append = Append([StreamWrite(s, versions[s], e) for s, e in writes.items()])
            await log.append(append)
            versions.update(scopes)


def _twin_of(directory: Path, records: int) -> Path:
    """Give the twin of a size; make it if there is none."""
    path = directory / f"twin-{records}.db"
    if path.exists():
        return path
    versions: Counter[str] = Counter()
    with open_recorder(path) as recorder:
        for scopes, events in _portions(records):
            stored = []
            for scope, event in zip(scopes, events, strict=True):
                versions[scope] += 1
                stored.append(StoredEvent(scope, versions[scope], event.name, event.body))
            recorder.insert_events(stored)
    return path


def _portions(records: int) -> Iterator[tuple[Sequence[str], Sequence[NewEvent]]]:
    """Give what goes into each commit: scopes and events, in pairs."""
    events = new_events(records)
    for first in range(0, records, _PER_COMMIT):
        numbers = range(first, min(first + _PER_COMMIT, records))
        yield [_scope_of(number, records) for number in numbers], [events[n] for n in numbers]


def _scope_of(number: int, records: int) -> str:
    """Give the scope to which the record of a number belongs."""
    if number % _BUSY_EVERY == 0:
        return BUSY_SCOPE
    if number % (records // SMALL_SCOPE_RECORDS) == 1:
        return SMALL_SCOPE
    return f"session/{number % _SCOPES}"
