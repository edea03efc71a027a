from __future__ import annotations

from dataclasses import replace

import pytest

from perdure.eventlog import cbor
from perdure.eventlog.append import Append, StreamWrite, Unmoved
from perdure.eventlog.errors import InvalidAppend, ScopeMoved, StreamSealed, WrongExpectedVersion
from perdure.eventlog.ledger import Admitted, AppendRefused, Deferred, Ledger, Repeated
from perdure.eventlog.memory import MemoryStore
from perdure.eventlog.record import NewEvent
from perdure.eventlog.testing import example_event, example_log, example_record

NOW = 1_767_225_600_000_000_000


@pytest.fixture
def store() -> MemoryStore:
    """Three streams of five records; session/0 holds the first two of them."""
    store = MemoryStore()
    store.commit(example_log())
    return store


@pytest.fixture
def ledger(store: MemoryStore) -> Ledger:
    """A ledger on that store."""
    return Ledger(store, store.head().position)


def write(stream: str, expected: int, *, seal: bool = False, scope: str = "") -> Append:
    """Append one event."""
    return Append([StreamWrite(stream, expected, [example_event()], scope, seal)])


TWIN = example_event()


def odd(**parts: object) -> NewEvent:
    """An event with something in it that does not belong there."""
    return replace(example_event(), **parts)  # type: ignore[arg-type]


def test_records_are_numbered_by_stream_and_by_log(ledger: Ledger) -> None:
    """Versions go on where the stream stood, positions where the log stood."""
    one, two = ([example_event(), example_event()] for _ in range(2))
    append = Append([StreamWrite("run/0", 5, one, "session/0"), StreamWrite("run/9", 0, two)])
    verdict = ledger.admit(append, NOW)
    assert isinstance(verdict, Admitted)
    assert [(r.position, r.stream, r.version) for r in verdict.records] == [
        (16, "run/0", 6),
        (17, "run/0", 7),
        (18, "run/9", 1),
        (19, "run/9", 2),
    ]
    assert {r.commit_time for r in verdict.records} == {NOW}


def test_the_last_record_of_a_sealing_write_carries_the_seal(ledger: Ledger) -> None:
    """A seal is a property of one record, the last."""
    append = Append([StreamWrite("run/9", 0, [example_event(), example_event()], seal=True)])
    verdict = ledger.admit(append, NOW)
    assert isinstance(verdict, Admitted)
    assert [r.seal for r in verdict.records] == [0, 1]


def test_a_conflict_names_the_stream_and_both_versions(ledger: Ledger) -> None:
    """Old news is refused with what the caller needs to know."""
    verdict = ledger.admit(write("run/0", 3), NOW)
    assert isinstance(verdict, AppendRefused)
    assert isinstance(verdict.error, WrongExpectedVersion)
    assert (verdict.error.stream, verdict.error.expected, verdict.error.actual) == ("run/0", 3, 5)
    assert "'run/0' is at version 5, not 3" in str(verdict.error)


def test_a_conflict_does_not_touch_the_rest(ledger: Ledger) -> None:
    """A refused append leaves no trace in the batch, not even its writes before the conflict."""
    append = Append([StreamWrite("run/9", 0, [example_event()]), write("run/0", 3).writes[0]])
    assert isinstance(ledger.admit(append, NOW), AppendRefused)
    verdict = ledger.admit(write("run/9", 0), NOW)
    assert isinstance(verdict, Admitted)
    assert verdict.records[0].position == 16


def test_a_conflict_with_the_batch_is_deferred(ledger: Ledger) -> None:
    """What is not on disk yet is no reason to refuse anybody."""
    assert isinstance(ledger.admit(write("run/9", 0), NOW), Admitted)
    assert isinstance(ledger.admit(write("run/9", 0), NOW), Deferred)


def test_a_deferred_append_is_refused_once_its_cause_is_kept(
    ledger: Ledger, store: MemoryStore
) -> None:
    """When the batch is on disk the conflict is real."""
    admitted = ledger.admit(write("run/9", 0), NOW)
    assert isinstance(admitted, Admitted)
    store.commit(admitted.records)
    ledger.keep()
    assert isinstance(ledger.admit(write("run/9", 0), NOW), AppendRefused)


def test_a_deferred_append_is_admitted_once_its_cause_is_gone(ledger: Ledger) -> None:
    """When the batch failed, versions, seals and positions are taken back."""
    ledger.admit(write("run/9", 0, seal=True), NOW)
    ledger.roll_back()
    verdict = ledger.admit(write("run/9", 0), NOW)
    assert isinstance(verdict, Admitted)
    assert verdict.records[0].position == 16


def test_a_sealed_stream_is_refused(ledger: Ledger, store: MemoryStore) -> None:
    """Nothing follows a seal, from disk or in the batch."""
    store.commit([example_record(16, "run/5", seal=True)])
    verdict = ledger.admit(write("run/5", 1), NOW)
    assert isinstance(verdict, AppendRefused)
    assert isinstance(verdict.error, StreamSealed)
    assert isinstance(ledger.admit(write("run/6", 0, seal=True), NOW), Admitted)
    assert isinstance(ledger.admit(write("run/6", 1), NOW), Deferred)


def test_a_scope_must_not_have_moved(ledger: Ledger) -> None:
    """An append may require that nothing was written in a scope past a position."""
    moved = Append(write("run/9", 0).writes, [Unmoved("session/0", 13)])
    verdict = ledger.admit(moved, NOW)
    assert isinstance(verdict, AppendRefused)
    assert isinstance(verdict.error, ScopeMoved)
    assert (verdict.error.position, verdict.error.actual) == (13, 14)
    still = Append(write("run/9", 0).writes, [Unmoved("session/0", 14), Unmoved("nothing", 0)])
    assert isinstance(ledger.admit(still, NOW), Admitted)


def test_a_scope_that_moves_in_the_batch_defers(ledger: Ledger) -> None:
    """The batch counts for scopes too, and an append may move the scope it watches."""
    watching = Append(write("run/9", 0, scope="session/0").writes, [Unmoved("session/0", 14)])
    assert isinstance(ledger.admit(watching, NOW), Admitted)
    again = Append(write("run/8", 0).writes, [Unmoved("session/0", 14)])
    assert isinstance(ledger.admit(again, NOW), Deferred)


def test_the_same_events_again_are_recognised(ledger: Ledger, store: MemoryStore) -> None:
    """An append repeated after an unknown outcome is answered with the records on disk."""
    append = Append([write("run/8", 0).writes[0], write("run/9", 0, seal=True).writes[0]])
    admitted = ledger.admit(append, NOW)
    assert isinstance(admitted, Admitted)
    store.commit(admitted.records)
    fresh = Ledger(store, store.head().position)
    assert fresh.admit(append, NOW) == Repeated(list(admitted.records))


def test_other_events_at_the_same_place_are_a_conflict(ledger: Ledger, store: MemoryStore) -> None:
    """Only equal event ids make a repetition."""
    append = Append([write("run/9", 0).writes[0]])
    admitted = ledger.admit(append, NOW)
    assert isinstance(admitted, Admitted)
    store.commit(admitted.records)
    ledger.keep()
    assert isinstance(ledger.admit(write("run/9", 0), NOW), AppendRefused)


def test_a_stream_never_changes_its_scope(ledger: Ledger) -> None:
    """That would tear a stream out of its scope's history."""
    verdict = ledger.admit(write("run/0", 5, scope="session/7"), NOW)
    assert isinstance(verdict, AppendRefused)
    assert isinstance(verdict.error, InvalidAppend)


def test_the_cache_is_bounded_and_forgetting_is_harmless(store: MemoryStore) -> None:
    """A small ledger looks up what it forgot and decides the same."""
    ledger = Ledger(store, store.head().position, capacity=2)
    for number in range(20, 40):
        admitted = ledger.admit(write(f"run/{number}", 0), NOW)
        assert isinstance(admitted, Admitted)
        store.commit(admitted.records)
        ledger.keep()
    assert len(ledger._streams) == len(ledger._scopes) == 2
    assert isinstance(ledger.admit(write("run/20", 0), NOW), AppendRefused)
    assert isinstance(ledger.admit(write("run/20", 1), NOW), Admitted)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Append([]), "without writes"),
        (lambda: Append([*write("a", 0).writes, *write("a", 0).writes]), "twice"),
        (lambda: StreamWrite("", 0, [example_event()]), "stream name"),
        (lambda: StreamWrite("a\0", 0, [example_event()]), "NUL"),
        (lambda: StreamWrite("a", 0, [example_event()], "\ud800"), "surrogate"),
        (lambda: StreamWrite("é" * 257, 0, [example_event()]), "512 bytes"),
        (lambda: StreamWrite("a", -1, [example_event()]), "expected version -1"),
        (lambda: StreamWrite("a", 1 << 63, [example_event()]), "expected version"),
        (lambda: StreamWrite("a", 0, []), "no events"),
        (lambda: StreamWrite("a", 0, [example_event("")]), "event name"),
        (lambda: StreamWrite("a", 0, [example_event("\ud800")]), "surrogate"),
        (lambda: StreamWrite("a", 0, [replace(example_event(), event_id=b"")]), "event id"),
        (lambda: StreamWrite("a", 0, [replace(example_event(), event_time=1 << 63)]), "event time"),
        (lambda: StreamWrite("a", 0, [replace(example_event(), schema=0)]), "schema version 0"),
        (lambda: Unmoved("\ud800", 1), "surrogate"),
        (lambda: StreamWrite(7, 0, [example_event()]), "of type int"),  # type: ignore[arg-type]
        (lambda: StreamWrite("a", 0.5, [example_event()]), "expected"),  # type: ignore[arg-type]
        (lambda: StreamWrite("a", 0, [odd(body=[])]), "are bytes"),
        (lambda: StreamWrite("a", 0, [odd(body="text")]), "are bytes"),
        (lambda: StreamWrite("a", 0, [odd(event_id="x" * 16)]), "are bytes"),
        (lambda: StreamWrite("a", 0, [odd(event_time=1.5)]), "no integer"),
        (lambda: StreamWrite("a", 0, [odd(meta=b"\xff")]), "nobody could read"),
        (lambda: StreamWrite("a", 0, [odd(meta=cbor.encode([]))]), "is a map"),
        (lambda: StreamWrite("a", 0, [odd(meta=cbor.encode({"fields": None}))]), "is a map"),
        (lambda: StreamWrite("a", 0, [odd(meta=cbor.encode({"fields": {"x": [1]}}))]), "field 'x'"),
        (lambda: Append([StreamWrite("a", 0, [TWIN, TWIN])]), "one event id twice"),
        (lambda: Append([StreamWrite("a", 0, [example_event() for _ in range(1001)])]), "at most"),
        (lambda: Append([StreamWrite("a", 0, [example_event(x=b"x" * 900_000)] * 5)]), "at most"),
        (lambda: StreamWrite("a", 0, [example_event(x=b"x" * (1 << 20))]), "takes 10"),
    ],
)
def test_an_append_that_can_never_succeed_is_refused_at_once(make: object, reason: str) -> None:
    """Bad names, sizes and shapes fail where they are made."""
    assert callable(make)
    with pytest.raises(InvalidAppend, match=reason):
        make()


def test_nobody_changes_an_append_that_waits() -> None:
    """Lists and generators are taken as they are now."""
    events = [example_event()]
    write = StreamWrite("a", 0, events)
    events.clear()
    assert len(write.events) == 1
    assert len(StreamWrite("a", 0, (e for e in [example_event()])).events) == 1  # type: ignore[arg-type]


def named(name: str, stream: str, expected: int) -> Append:
    """Append one event of a name in session/0."""
    event = replace(example_event(), name=name)
    return Append([StreamWrite(stream, expected, [event], "session/0")])


def requiring(position: int, *names: str) -> Append:
    """Append somewhere else, if nothing of some names came in session/0 after a position."""
    required = Unmoved("session/0", position, frozenset(names))
    return Append([StreamWrite(f"run/{names}/{position}", 0, [example_event()])], [required])


def test_a_scope_may_move_by_events_of_other_names(ledger: Ledger) -> None:
    """From the first question on they are told apart; what was there before counts as any."""
    start = ledger.admit(named("test.a", "run/8", 0), NOW)
    assert isinstance(start, Admitted)
    ledger.keep()
    position = start.records[0].position
    before = ledger.admit(requiring(position - 1, "test.b"), NOW)
    assert isinstance(before, AppendRefused)  # nobody had asked yet
    moved = ledger.admit(named("test.a", "run/8", 1), NOW)
    assert isinstance(moved, Admitted)
    assert isinstance(ledger.admit(requiring(position, "test.a"), NOW), Deferred)
    ledger.keep()
    assert isinstance(ledger.admit(requiring(position, "test.b"), NOW), Admitted)
    assert isinstance(ledger.admit(requiring(position), NOW), Admitted)
    refused = ledger.admit(requiring(position, "test.a", "test.b"), NOW)
    assert isinstance(refused, AppendRefused)
    assert isinstance(refused.error, ScopeMoved)
    assert refused.error.actual == moved.records[0].position


def test_a_batch_that_failed_moves_no_name(ledger: Ledger) -> None:
    """What was watched is forgotten with it, and watched again."""
    first = ledger.admit(named("test.a", "run/8", 0), NOW)
    assert isinstance(first, Admitted)
    ledger.keep()
    position = first.records[0].position
    ledger.admit(requiring(position - 1, "test.b"), NOW)
    ledger.admit(named("test.b", "run/9", 0), NOW)
    ledger.roll_back()
    assert isinstance(ledger.admit(requiring(position, "test.b"), NOW), Admitted)
