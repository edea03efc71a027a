"""Verification: whether the log keeps its own promises.

Checked are checksums, versions without holes, positions and commit times that only grow, seals that
end their streams, scopes that never change, event ids that occur once, and that every record can be
decoded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from perdure.eventlog import cbor
from perdure.eventlog.errors import CodecError, DamagedRecord, StoreFailed
from perdure.eventlog.record import EVENT_ID_BYTES, START, Record, check_metadata
from perdure.eventlog.store import PAGE_RECORDS, Bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeVarTuple, Unpack

    from perdure.eventlog.record import Mark
    from perdure.eventlog.registry import EventRegistry
    from perdure.eventlog.store import Store, Witness

    Arguments = TypeVarTuple("Arguments")

MAX_PROBLEMS: Final = 100
MAX_NAMES: Final = 5  # of events of a newer release
Result = TypeVar("Result")


class Verifiable(Protocol):
    """What verification needs of a log."""

    @property
    def store(self) -> Store:
        """What it is stored in."""

    async def in_thread(
        self,
        fn: Callable[[Unpack[Arguments]], Result],
        *args: *Arguments,
    ) -> Result:
        """Call a blocking function of the store."""


@dataclass(slots=True)
class Problems:
    """What is wrong with something. ``problems`` holds the first hundred."""

    problems: list[str] = field(default_factory=list)
    problem_count: int = 0

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.problem_count

    def note(self, problems: Iterable[str]) -> None:
        """Take problems in."""
        for problem in problems:
            self.problem_count += 1
            if len(self.problems) < MAX_PROBLEMS:
                self.problems.append(problem)


@dataclass(slots=True)
class Report(Problems):
    """What verification read and found.

    ``unchecked`` records were written before there were checksums: a changed value of theirs is
    found only if it breaks another rule.
    """

    records: int = 0
    unchecked: int = 0
    streams: int = 0
    unknown: int = 0  # records of a newer release, with some of the names of their events
    unknown_names: list[str] = field(default_factory=list)

    def note_unknown(self, record: Record) -> None:
        """Count a record of a newer release."""
        self.unknown += 1
        is_new = record.name not in self.unknown_names
        if is_new and len(self.unknown_names) < MAX_NAMES:
            self.unknown_names.append(record.name)


async def verify(
    log: Verifiable,
    *,
    registry: EventRegistry | None = None,
    knows: Callable[[Record], bool] = lambda _record: True,
    witness: Witness | None = None,
    progress: Callable[[int], None] = lambda _records: None,
) -> Report:
    """Read the whole log twice, by position and by stream, and report what is wrong.

    ``witness`` is a file beside the log that knows how far the log has come. Records of events
    that this release does not know are counted; they are no problem of the log's.
    """
    report, head = Report(), START
    try:
        report.note(await log.in_thread(log.store.integrity_problems))
        head, problems = await log.in_thread(_end, log.store, witness)
        report.note(problems)
    except StoreFailed as exc:
        report.note([f"the database cannot be read: {exc}"])
    report.unchecked = min(log.store.unchecked, head.position)
    for walk in (
        partial(_verify_order, registry=registry, knows=knows, progress=progress),
        _verify_streams,
    ):
        try:
            await walk(log, head.position, report)
        except StoreFailed as exc:
            report.note([f"the database cannot be read: {exc}"])
    return report


def _end(store: Store, witness: Witness | None) -> tuple[Mark, list[str]]:
    """Give the head of the log, and what contradicts it. A writer may be at work meanwhile."""
    before, head, after = store.last_position(), store.head(), store.last_position()
    where, problems = f"the log ends at {head.position}", []
    if head.position < before:
        problems.append(f"{where}, but position {before} was used before")
    if head.position > after:
        problems.append(f"{where}, but its last position should be {after}")
    if witness is not None and head.position < witness.position:
        problems.append(f"{where}, but {witness.file} has seen position {witness.position}")
    return head, problems


async def _verify_order(
    log: Verifiable,
    upto: int,
    report: Report,
    *,
    registry: EventRegistry | None,
    knows: Callable[[Record], bool],
    progress: Callable[[int], None],
) -> None:
    position = commit_time = 0
    while position < upto:
        try:
            page = await log.in_thread(log.store.read_all, position, Bounds(upto=upto))
        except DamagedRecord as damage:
            found = f" (of stream {damage.stream!r})" if damage.stream else ""
            missing = damage.last - damage.position
            more = f", and so are the next {missing}" if missing else ""
            report.note([f"{damage}{more}{found}"])
            position = damage.last
            continue
        for record in page.records:
            if record.position != position + 1:
                report.note([f"record {record.position} follows {position}: some are missing"])
            position = record.position
            if record.commit_time < commit_time:
                report.note([f"record {record.position}: committed before the one before it"])
            commit_time = record.commit_time
            report.note(_undecodable(record, registry))
            if not knows(record):
                report.note_unknown(record)
        report.records += len(page.records)
        progress(report.records)
        if not page.records:
            return


async def _verify_streams(log: Verifiable, upto: int, report: Report) -> None:
    place, last = ("", 0), None
    while page := await log.in_thread(log.store.read_by_stream, place, PAGE_RECORDS):
        for record in page:
            if record.position > upto:
                continue
            if last is None or last.stream != record.stream:
                report.streams += 1
                report.note(_bad_first(record))
            else:
                report.note(_bad_successor(last, record))
            last = record
        place = (page[-1].stream, page[-1].version)


def _undecodable(record: Record, registry: EventRegistry | None) -> Iterator[str]:
    try:
        cbor.decode_strict(record.body)
        check_metadata(record.meta)
        if registry is not None:
            registry.decode(record)
    except CodecError as exc:
        yield f"record {record.position}: {exc}"
    if len(record.event_id) != EVENT_ID_BYTES:
        yield f"record {record.position}: an event id of {len(record.event_id)} bytes"


def _bad_first(record: Record) -> Iterator[str]:
    if record.version != 1:
        yield f"stream {record.stream!r}: begins with version {record.version}"


def _bad_successor(last: Record, record: Record) -> Iterator[str]:
    where = f"stream {record.stream!r}"
    if record.version != last.version + 1:
        yield f"{where}: version {record.version} follows {last.version}"
    if record.position <= last.position:
        yield f"{where}: version {record.version} lies before version {last.version}"
    if last.seal:
        yield f"{where}: version {record.version} follows the seal"
    if record.scope != last.scope:
        yield f"{where}: version {record.version} changes the scope"
