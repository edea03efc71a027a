"""What every store has to keep, as tests; and example values for tests of anything above it.

A store's tests subclass ``StoreContract`` and say how to make one:

    class TestMyStore(StoreContract):
        def make_store(self) -> MyStore: ...

The recorder tests that the ``eventsourcing`` library ships are part of the contract. Run them by
subclassing them too, with ``TextStreamIds`` in front.
"""

from __future__ import annotations

from abc import abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perdure.eventlog import cbor
from perdure.eventlog.env import IdMint
from perdure.eventlog.errors import StoreConflict
from perdure.eventlog.record import START, Mark, Metadata, NewEvent, Record, with_checksum
from perdure.eventlog.store import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from perdure.eventlog.store import Store

EXAMPLE_TIME = 1_767_225_600_000_000_000  # 2026-01-01 UTC


class _Counter:
    """Predictable randomness for example ids."""

    def __init__(self) -> None:
        self.value = 0

    def bits(self, _: int) -> int:
        self.value += 1
        return self.value


_ids = IdMint(lambda: EXAMPLE_TIME, _Counter().bits)


def example_event(name: str = "example.happened", **content: cbor.Value) -> NewEvent:
    """Make an event with an id of its own."""
    return NewEvent(
        name=name,
        body=cbor.encode(content),
        event_id=_ids.mint().bytes,
        event_time=EXAMPLE_TIME,
        meta=Metadata(principal="local/local").encode(),
    )


def example_record(
    position: int,
    stream: str = "run/1",
    version: int = 1,
    *,
    scope: str | None = None,
    seal: bool = False,
    commit_time: int | None = None,
    size: int = 0,
) -> Record:
    """Make a record as the writer would number it."""
    event = example_event(filling=b"x" * size)
    record = Record(
        position=position,
        stream=stream,
        version=version,
        name=event.name,
        body=event.body,
        scope=scope or stream,
        event_id=event.event_id,
        event_time=event.event_time,
        commit_time=EXAMPLE_TIME + position if commit_time is None else commit_time,
        schema=event.schema,
        seal=int(seal),
        meta=event.meta,
    )
    return with_checksum(record)


def example_log(streams: int = 3, length: int = 5) -> list[Record]:
    """Make the records of some streams, interleaved, two streams to a scope."""
    return [
        example_record(
            version * streams + number + 1,
            f"run/{number}",
            version + 1,
            scope=f"session/{number // 2}",
        )
        for version in range(length)
        for number in range(streams)
    ]


class TextStreamIds:
    """Put in front of the library's recorder test cases: our stream ids are text."""

    _originators = IdMint(lambda: EXAMPLE_TIME, _Counter().bits)

    def new_originator_id(self) -> UUID | str:
        """Give a new stream id."""
        return f"stream/{self._originators.mint()}"


class StoreContract:
    """The tests of the store port. Each one opens a store of its own."""

    @abstractmethod
    def make_store(self) -> Store:
        """Make an empty store that may be written."""

    @contextmanager
    def store(self, records: Sequence[Record] = ()) -> Iterator[Store]:
        """Open a store that holds these records."""
        store = self.make_store()
        try:
            if records:
                store.commit(records)
            yield store
        finally:
            store.close()

    # Empty

    def test_an_empty_store_has_a_head_and_no_records(self) -> None:
        """An empty log is a log: its head is the start and every page is empty."""
        with self.store() as store:
            assert store.head() == START
            assert store.commit_time() == 0
            assert store.read_all(0, Bounds()) == ([], False, START)
            assert store.read_scope("run/1", 0, Bounds()) == ([], False, START)
            assert store.read_stream("run/1", 0, Bounds()) == ([], False, START)
            assert store.mark_before(EXAMPLE_TIME) == START
            assert store.version_at("run/1", 99) == 0

    # Writing

    def test_what_was_committed_is_read_back_unchanged(self) -> None:
        """A record comes back equal in every part."""
        records = example_log()
        with self.store(records) as store:
            assert store.read_all(0, Bounds()).records == records
            assert store.head() == records[-1].mark
            assert store.commit_time() == records[-1].commit_time

    def test_a_version_is_written_once(self) -> None:
        """The store itself refuses a second record of the same stream and version."""
        with self.store([example_record(1)]) as store:
            assert _is_refused(store, [example_record(2)])
            assert store.head().position == 1

    def test_a_batch_is_written_whole_or_not_at_all(self) -> None:
        """A conflict in a batch leaves nothing of it, also between two of its own records."""
        with self.store([example_record(1)]) as store:
            assert _is_refused(store, [example_record(2, "run/2"), example_record(3)])
            twins = [example_record(2, "run/2"), example_record(3, "run/2")]
            assert _is_refused(store, twins)
            assert [r.position for r in store.read_all(0, Bounds()).records] == [1]

    def test_a_sealed_stream_takes_nothing_more(self) -> None:
        """The store itself refuses a record after a seal, in the same batch too."""
        sealed = example_record(1, seal=True)
        with self.store([sealed]) as store:
            assert _is_refused(store, [example_record(2, version=2)])
            assert store.stream_state("run/1") == (1, "run/1", True)
        with self.store() as store:
            assert _is_refused(store, [sealed, example_record(2, version=2)])

    def test_a_refused_batch_does_not_stop_the_next(self) -> None:
        """After a conflict the store works as before."""
        with self.store([example_record(1)]) as store:
            assert _is_refused(store, [example_record(2)])
            store.commit([example_record(2, version=2)])
            assert store.head().position == 2

    # Looking up

    def test_the_state_of_a_stream_is_its_last_version(self) -> None:
        """The writer learns version, scope and seal of a stream, and that there is none."""
        with self.store(example_log(streams=2, length=3)) as store:
            assert store.stream_state("run/1") == (3, "session/0", False)
            assert store.stream_state("run/9") == (0, "", False)

    def test_the_position_of_a_scope_is_that_of_its_newest_record(self) -> None:
        """The writer learns how far a scope has moved."""
        records = example_log(streams=3, length=2)
        with self.store(records) as store:
            assert store.scope_position("session/0") == 5
            assert store.scope_position("session/1") == 6
            assert store.scope_position("session/9") == 0

    def test_a_slice_of_a_stream_follows_a_version(self) -> None:
        """A few records of a stream are found by version."""
        with self.store(example_log(length=5)) as store:
            found = store.slice_of_stream("run/0", 2, 2)
            assert [(r.stream, r.version) for r in found] == [("run/0", 3), ("run/0", 4)]

    def test_a_mark_is_found_by_position(self) -> None:
        """A position names one record or none."""
        records = example_log()
        with self.store(records) as store:
            assert store.mark_at(3) == records[2].mark
            assert store.mark_at(99) is None
            assert store.mark_at(0) is None

    def test_an_instant_maps_to_the_last_record_committed_until_then(self) -> None:
        """Equal commit times belong together; before the first there is the start."""
        records = [
            example_record(n, version=n, commit_time=EXAMPLE_TIME + n // 2) for n in range(1, 6)
        ]
        with self.store(records) as store:
            assert store.mark_before(EXAMPLE_TIME - 1) == START
            assert store.mark_before(EXAMPLE_TIME) == records[0].mark
            assert store.mark_before(EXAMPLE_TIME + 1) == records[2].mark
            assert store.mark_before(EXAMPLE_TIME + 99) == records[4].mark
            assert store.mark_before(1 << 80) == records[4].mark
            assert store.mark_before(-(1 << 80)) == START

    def test_a_position_maps_to_the_version_a_stream_had_there(self) -> None:
        """Time travel on a stream finds its version by position."""
        records = example_log(streams=3, length=7)
        with self.store(records) as store:
            for position in range(len(records) + 3):
                expected = sum(r.stream == "run/1" for r in records[:position])
                assert store.version_at("run/1", position) == expected

    # Reading

    def test_pages_cover_the_log_once(self) -> None:
        """Reading page by page gives each record once, in order, and says when it is done."""
        records = example_log(streams=4, length=5)
        with self.store(records) as store:
            found: list[Record] = []
            while True:
                page = store.read_all(found[-1].position if found else 0, Bounds(records=3))
                found.extend(page.records)
                assert page.head == records[-1].mark
                if not page.more:
                    break
                assert len(page.records) == 3
            assert found == records

    def test_a_page_that_ends_with_the_log_has_no_more(self) -> None:
        """A page as long as what is left says that nothing follows."""
        records = example_log(streams=1, length=4)
        with self.store(records) as store:
            assert not store.read_all(0, Bounds(records=4)).more
            assert store.read_all(0, Bounds(records=3)).more

    def test_a_page_is_bounded_in_bytes(self) -> None:
        """Large records make short pages, but never an empty one."""
        records = [example_record(n, version=n, size=1000) for n in range(1, 6)]
        with self.store(records) as store:
            assert len(store.read_all(0, Bounds(bytes=2500)).records) == 3
            page = store.read_all(0, Bounds(bytes=1))
            assert (len(page.records), page.more) == (1, True)

    def test_a_scope_is_read_by_position(self) -> None:
        """A scope's records come in commit order, from several streams."""
        records = example_log(streams=4, length=3)
        with self.store(records) as store:
            wanted = [r for r in records if r.scope == "session/1"]
            assert store.read_scope("session/1", 0, Bounds()).records == wanted
            after = wanted[1].position
            assert store.read_scope("session/1", after, Bounds()).records == wanted[2:]
            assert store.read_scope("session/1", 0, Bounds(records=2)).more

    def test_a_stream_is_read_by_version(self) -> None:
        """A stream's records come in order of version."""
        records = example_log(streams=4, length=3)
        with self.store(records) as store:
            wanted = [r for r in records if r.stream == "run/2"]
            assert store.read_stream("run/2", 0, Bounds()).records == wanted
            assert store.read_stream("run/2", 1, Bounds()).records == wanted[1:]

    def test_reading_stops_at_a_position(self) -> None:
        """Every read can be bounded by a position: that is the log as it was then."""
        records = example_log(streams=4, length=3)
        with self.store(records) as store:
            past = [r for r in records if r.position <= 7]
            bounds = Bounds(upto=7)
            assert store.read_all(0, bounds).records == past
            of_scope = [r for r in past if r.scope == "session/0"]
            assert store.read_scope("session/0", 0, bounds).records == of_scope
            of_stream = [r for r in past if r.stream == "run/3"]
            assert store.read_stream("run/3", 0, bounds).records == of_stream

    def test_all_records_can_be_walked_by_stream(self) -> None:
        """Verification walks along streams, whatever their names are."""
        records = example_log(streams=3, length=3)
        with self.store(records) as store:
            wanted = sorted(records, key=lambda r: (r.stream, r.version))
            first = list(store.read_by_stream(("", 0), 4))
            rest = list(store.read_by_stream((first[-1].stream, first[-1].version), 99))
            assert first + rest == wanted

    def test_the_head_of_a_page_is_the_head_it_was_read_at(self) -> None:
        """A page tells the newest place of the log in the same read."""
        with self.store([example_record(1, "run/1")]) as store:
            store.commit([example_record(2, "run/2")])
            page = store.read_stream("run/1", 0, Bounds())
            assert page.head == Mark(2, store.read_all(1, Bounds()).records[0].event_id)

    def test_a_reader_that_goes_on_from_each_head_misses_nothing(self) -> None:
        """A page and its head are of one moment: a commit in between is in both or in neither."""
        records = [
            example_record(n, "session/1" if n % 2 else "run/1", (n + 1) // 2, scope="session/1")
            for n in range(1, 301)
        ]

        def write(store: Store) -> None:
            for record in records:
                store.commit([record])

        with self.store() as store, ThreadPoolExecutor(1) as other:
            writing = other.submit(write, store)
            found: list[Record] = []
            after = 0
            while after < len(records):
                if writing.done():
                    writing.result()
                page = store.read_scope("session/1", after, Bounds(records=5))
                found.extend(page.records)
                after = page.records[-1].position if page.more else page.head.position
            assert found == records

    def test_integrity_is_checked(self) -> None:
        """A sound store reports no problems; a repeated event id is one."""
        record = example_record(1)
        with self.store([record]) as store:
            assert not store.integrity_problems()
            store.commit([record._replace(position=2, version=2)])
            assert len(store.integrity_problems()) == 1


def _is_refused(store: Store, records: Sequence[Record]) -> bool:
    try:
        store.commit(records)
    except StoreConflict:
        return True
    return False
