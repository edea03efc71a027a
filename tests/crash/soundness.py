"""Soundness: whether a log found after a mishap is one that its writer would recognise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from perdure.eventlog import (
    Append,
    EventLog,
    EventLogError,
    RealEnv,
    SqliteStore,
    StreamWrite,
    open_log,
)
from perdure.eventlog import verify as verify_log
from perdure.eventlog.store import Bounds
from tests.crash import workload
from tests.crash.answers import NOT_WRITTEN, Answer, Answered, with_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from perdure.eventlog import Record

LOG_NAME: Final = "log.db"
WITHOUT: Final = ("*-shm",)  # SQLite's shared memory: rebuilt by whoever opens the database first


def read(store: SqliteStore) -> list[Record]:
    """Read all records by position."""
    records: list[Record] = []
    while True:
        page = store.read_all(records[-1].position if records else 0, Bounds())
        records.extend(page.records)
        if not page.more:
            return records


@dataclass(frozen=True)
class History:
    """A log at its best: what a damaged copy of it may have lost the end of, and no more."""

    generation: str
    event_ids: Sequence[bytes]

    @classmethod
    def of(cls, path: Path) -> History:
        """Read a log that nothing has happened to."""
        store = SqliteStore.open(path, env=RealEnv())
        try:
            return cls(store.generation, [record.event_id for record in read(store)])
        finally:
            store.close()

    def departures(self, generation: str, records: Sequence[Record]) -> Iterator[str]:
        """Say where a log is not the beginning of this one."""
        if records and generation != self.generation:
            yield "the log has another generation"
        if [record.event_id for record in records] != self.event_ids[: len(records)]:
            yield "the log is not the beginning of what was written"


def problems(
    path: Path,
    answers: Sequence[Answered],
    *,
    history: History | None = None,
    thorough: bool = True,
) -> list[str]:
    """Open a log as its writer; say what is wrong with it, given what had been answered."""
    try:
        store = SqliteStore.open(path, env=RealEnv())
    except EventLogError as exc:
        return [f"cannot be opened: {exc!r}"]
    try:
        records = read(store)
        found = [*store.integrity_problems(), *_broken_promises(records, answers)]
        found += _disorder(records)
        found += workload.damage(records)
        if history is not None:
            found += history.departures(store.generation, records)
        if thorough:
            found += trio.run(_verified_and_writable, store)
    except EventLogError as exc:
        return [f"cannot be used: {exc!r}"]
    else:
        return found
    finally:
        store.close()


def _broken_promises(records: Iterable[Record], answers: Sequence[Answered]) -> Iterator[str]:
    there = {record.event_id for record in records}
    promised = with_answer(answers, Answer.ACK)
    denied = with_answer(answers, *NOT_WRITTEN)
    for event_id in sorted(promised - there):
        yield f"acknowledged event {event_id.hex()} is lost"
    for event_id in sorted((denied - promised) & there):
        yield f"event {event_id.hex()} is there, though its writer was told that it is not"


def _disorder(records: Iterable[Record]) -> Iterator[str]:
    position = 0
    versions: dict[str, int] = {}
    sealed: set[str] = set()
    ids: set[bytes] = set()
    for record in records:
        where = f"record {record.position} (version {record.version} of {record.stream!r})"
        if record.position <= position:
            yield f"{where} follows position {position}"
        if record.version != versions.get(record.stream, 0) + 1:
            yield f"{where} follows version {versions.get(record.stream, 0)}"
        if record.stream in sealed:
            yield f"{where} follows the seal"
        if record.event_id in ids:
            yield f"{where} has an event id that occurs before"
        position = record.position
        versions[record.stream] = record.version
        ids.add(record.event_id)
        if record.seal:
            sealed.add(record.stream)


async def _verified_and_writable(store: SqliteStore) -> list[str]:
    """Let the log verify itself, and go on writing it."""
    env = RealEnv()
    async with open_log(env, store) as log:
        found = (await verify_log(log)).problems
        event_id = env.new_id().bytes
        stream = f"after/{event_id.hex()}"
        receipt = await log.append(Append([StreamWrite(stream, 0, workload.events([event_id]))]))
        page = await log.read_stream(stream)
    return found if list(page.records) == list(receipt.records) else [*found, "cannot be written"]


async def verified(store: SqliteStore) -> list[str]:
    """Let a log or a backup verify itself."""
    return (await verify_log(EventLog(RealEnv(), store))).problems
