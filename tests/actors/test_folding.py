from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import pytest
import trio
from msgspec import structs
from trio.testing import MockClock

from perdure.actors import mailbox
from perdure.actors.decider import Decider
from perdure.actors.folded import Folded
from perdure.actors.folding import fold_events, fold_rest, fold_stream
from perdure.actors.run.core import FOLD, RUN
from perdure.actors.run.events import RUN_EVENTS, Answered, ProgressReported, StageChanged
from perdure.eventlog import EventLog, MemoryStore, Record, cbor, open_log
from perdure.eventlog.errors import CodecError
from perdure.eventlog.reading import Page
from perdure.eventlog.record import START, Mark
from perdure.eventlog.store import Bounds, StoredPage
from perdure.eventlog.testing import example_record
from tests.actors.given import given
from tests.actors.test_mailbox import COUNTER, COUNTS, Count, Counted, World, world
from tests.actors.test_run_core import ASKED, CANCELING, CREATED, STARTED, export
from tests.eventlog.conftest import SteadyEnv

RICH = given(
    RUN,
    CREATED,
    STARTED,
    ProgressReported(progress=0.5, message="half", at=3),
    StageChanged(stage="s", message=None, at=3),
    export(),
    ASKED,
    Answered(question_id="q", answer={"yes": b"1"}, by="b", at=3),
    CANCELING,
).state


@dataclass(frozen=True)
class Blob:
    """A state of bytes."""

    content: bytes


# What a fold makes of that history. A fold that gives something else needs another name.
FROZEN = {"run-3": "8e19684aabea9a57"}


class Watched(MemoryStore):
    """A store that counts what is read of streams."""

    read = 0

    def read_stream(self, stream: str, after_version: int, bounds: Bounds) -> StoredPage:
        """Read, and count."""
        page = super().read_stream(stream, after_version, bounds)
        self.read += len(page.records)
        return page


async def counted(w: World, times: int) -> None:
    """Let the actor count, one event at a time."""
    for _ in range(times):
        await w.actor.ask(Count())


async def reads(log: EventLog) -> int:
    """How many records a fold of the counter reads."""
    store = log.store
    assert isinstance(store, Watched)
    store.read = 0
    await fold_stream(log, COUNTER, "counter/1")
    return store.read


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a snapshot every tenth event."""
    monkeypatch.setattr(mailbox, "SNAPSHOT_EVERY", 10)


@pytest.mark.usefixtures("_often")
async def test_a_long_stream_is_folded_from_its_snapshot(autojump_clock: MockClock) -> None:
    """A successor reads what came after the newest snapshot and knows all that was before."""
    async with world(Watched()) as w:
        await counted(w, 8)
        assert await reads(w.log) == 9
        await counted(w, 4)  # the first of them makes a snapshot
        assert await reads(w.log) == 4  # its record, and three after it
        w.start()
        assert (await w.actor.ask(Count(5))).state == 18
        await counted(w, 10)
        assert await reads(w.log) < 10


@pytest.mark.usefixtures("_often")
async def test_who_folds_a_long_stream_spares_the_next_one_the_work(
    autojump_clock: MockClock,
) -> None:
    """A snapshot is also made by an actor that found none."""
    store = Watched()
    async with world(store) as w:
        await counted(w, 30)
    env = SteadyEnv()
    async with open_log(env, store) as log, trio.open_nursery() as nursery:
        assert await reads(log) == 31
        later = World(log, store, env, nursery)
        later.start()
        await later.actor.look()
        await trio.sleep(10)
        assert await reads(log) == 1
        nursery.cancel_scope.cancel()


@pytest.mark.usefixtures("_often")
async def test_every_past_state_is_a_fold_that_stops_earlier(autojump_clock: MockClock) -> None:
    """At each record's place, snapshot or not, the state is what it was then."""
    async with world() as w:
        await counted(w, 35)
        for record in w.stored:
            folded = await fold_stream(w.log, COUNTER, "counter/1", at=record.mark)
            assert folded is not None
            assert (folded.state, folded.version) == (record.version, record.version)
            assert (folded.mark, folded.commit_time) == (record.mark, record.commit_time)


@pytest.mark.usefixtures("_often")
async def test_a_snapshot_that_cannot_be_read_is_passed_over(autojump_clock: MockClock) -> None:
    """It is a cache: what it holds is in the log as well."""
    async with world(Watched()) as w:
        await counted(w, 12)
        last = w.stored[-1]
        for state in (b"\xff", b"\x61x"):  # no CBOR at all; a text where a number should be
            await w.log.save_snapshot(
                "counter/1", last.version, last.event_id, fold=COUNTER.fold, state=state
            )
            assert await reads(w.log) == 1 + 13


async def test_a_stream_that_does_not_exist_folds_to_nothing(autojump_clock: MockClock) -> None:
    """Neither now nor before its first event."""
    async with world() as w:
        assert await fold_stream(w.log, COUNTER, "counter/2") is None
        assert await fold_rest(w.log, COUNTER, "counter/2", None) is None
        (first,) = w.store.read_all(0, Bounds()).records
        assert await fold_stream(w.log, COUNTER, "counter/1", at=first.mark) is not None


@dataclass
class Pages:
    """A stream in pages of three, which notes how it is asked for."""

    records: Sequence[Record]
    frozen: bytes | None = None
    snapshot: int = 0  # the version that is frozen
    asked: list[tuple[int, Mark | None]] = field(default_factory=list)

    async def read_stream(self, stream: str, *, after: int = 0, at: Mark | None = None) -> Page:
        """Read three records."""
        assert stream == "counter/1"
        self.asked.append((after, at))
        return self._page(after)

    async def read_from_snapshot(
        self, stream: str, fold: str, *, at: Mark | None = None
    ) -> tuple[bytes | None, Page]:
        """Read three records, from the one that is frozen on."""
        assert (stream, fold) == ("counter/1", COUNTER.fold)
        self.asked.append((0, at))
        return self.frozen, self._page(max(0, self.snapshot - 1))

    def _page(self, after: int) -> Page:
        records = self.records[after : after + 3]
        mark = records[-1].mark if records else START
        return Page(records, after + 3 < len(self.records), mark, "")


def stored(count: int) -> list[Record]:
    """A counter's stream, one at a time."""
    made = []
    for version in range(1, count + 1):
        new = COUNTS.encode(Counted(by=1), event_id=bytes(16), event_time=1)
        example = example_record(version, "counter/1", version, scope="session/1")
        made.append(example._replace(name=new.name, body=new.body))
    return made


@pytest.mark.parametrize("count", [1, 3, 4, 8])
async def test_a_stream_of_many_pages_is_folded_to_its_end(count: int) -> None:
    """Each page is read once, as the log was at the place asked for."""
    records = stored(count)
    last = records[-1]
    whole = Folded(count, count, last.mark, last.commit_time, "session/1")
    afters = list(range(0, count, 3))
    log = Pages(records)
    assert await fold_stream(log, COUNTER, "counter/1", at=last.mark) == whole
    assert log.asked == [(after, last.mark) for after in afters]
    log = Pages(records)
    assert await fold_rest(log, COUNTER, "counter/1", None, at=last.mark) == whole
    assert log.asked == [(after, last.mark) for after in afters]


def test_events_that_are_decoded_already_are_folded_as_a_stream_is() -> None:
    """The last record says where it stands."""
    last = stored(3)[-1]
    events = [Counted(by=1)] * 3
    whole = Folded(3, 3, last.mark, last.commit_time, "session/1", snapshot=0)
    assert fold_events(COUNTER, events, last) == whole


async def test_a_fold_knows_from_which_snapshot_it_came() -> None:
    """So that nobody saves one again too soon; what follows is folded onto it."""
    records = stored(8)
    last = records[-1]
    log = Pages(records, COUNTER.freeze(2), snapshot=2)
    folded = await fold_stream(log, COUNTER, "counter/1")
    assert folded == Folded(8, 8, last.mark, last.commit_time, "session/1", snapshot=2)
    assert await fold_rest(Pages(records), COUNTER, "counter/1", folded) == folded


async def test_a_bad_snapshot_is_passed_over_in_the_past_too() -> None:
    """The whole stream is read instead, as the log was then."""
    records = stored(5)
    last = records[-1]
    log = Pages(records, b"\xff", snapshot=2)
    folded = await fold_stream(log, COUNTER, "counter/1", at=last.mark)
    assert folded == Folded(5, 5, last.mark, last.commit_time, "session/1")
    assert log.asked == [(0, last.mark), (0, last.mark), (3, last.mark)]


def test_what_is_frozen_otherwise_is_refused() -> None:
    """Nothing is guessed: text is no bytes, whatever it could be decoded to."""
    blob: Decider[Blob, None, Counted] = Decider(
        state=Blob,
        initial=Blob(b""),
        decide=lambda _state, _command: (),
        evolve=lambda _state, _event: Blob(b""),
        describe=lambda _before, _after: {},
        is_over=lambda _state: False,
        events=COUNTS,
        fold="blob-1",
    )
    assert blob.thaw(blob.freeze(Blob(b"\xff"))) == Blob(b"\xff")
    with pytest.raises(CodecError, match=r"^a snapshot of blob-1 cannot be read: Expected"):
        blob.thaw(cbor.encode({"content": "eHg="}))


def test_a_state_is_the_same_after_freezing() -> None:
    """Everything a run knows survives a snapshot."""
    assert RUN.thaw(RUN.freeze(RICH)) == RICH


def test_a_changed_fold_has_another_name() -> None:
    """A snapshot made by other rules is never used: whoever changes the state renames the fold."""
    digest = blake2b(RUN.freeze(RICH), digest_size=8).hexdigest()
    assert {FOLD: digest} == FROZEN


@pytest.mark.usefixtures("_often")
async def test_a_state_that_cannot_be_kept_is_passed_over(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As deep arguments: they fit into an event, but not one level deeper into a snapshot."""
    deep: Any = 1
    for _ in range(30):
        deep = [deep]
    created = structs.replace(CREATED, args={"deep": deep})
    run = RUN.replay([created])
    assert run is not None
    RUN_EVENTS.encode(created, event_id=bytes(16), event_time=0)
    with pytest.raises(CodecError):
        RUN.freeze(run)
    async with world(Watched()) as w:
        freeze = Decider.freeze
        monkeypatch.setattr(Decider, "freeze", lambda *_: freeze(RUN, run))
        await counted(w, 25)
        assert (await w.actor.look()).state == 26
        assert await reads(w.log) == 26


def test_a_history_is_folded_onto_a_state_or_from_the_beginning() -> None:
    """No events leave either as it is."""
    history = [Counted(by=2), Counted(by=5)]
    assert (COUNTER.replay(history), COUNTER.replay(history, 3)) == (7, 10)
    assert (COUNTER.replay([]), COUNTER.replay([], 3)) == (0, 3)
