"""A log that is followed by pulling and in a group, and what each follower must have been told."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import trio
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from perdure.eventlog.filter import EVERYTHING, Filter
from perdure.eventlog.follow import Follow, FollowLimits
from perdure.eventlog.record import NO_METADATA, START, Mark, Record
from perdure.eventlog.store import Bounds, StoredPage
from perdure.eventlog.tail import Tail, TailLimits
from perdure.runtime.kernel.channels import Subscription
from perdure.runtime.kernel.channels.channel import Channel
from perdure.runtime.kernel.channels.event import ChannelEvent
from perdure.runtime.kernel.channels.groups import Groups
from perdure.runtime.kernel.channels.selection import Selection

HEARTBEAT = 15.0
SIZE = 100  # bytes that a delivery may have


class Shown(NamedTuple):
    """What an event says: of which record it is, which one of those, and what it reports on.

    Each brings a piece of news of its own, so that it is seen whether one got lost on the way.
    """

    position: int
    number: int
    stream: str
    is_report: bool

    @property
    def event(self) -> dict[str, Any]:
        """What is told, as an object."""
        return {"newest": [self.position, self.number], f"{self.position}.{self.number}": True}


class Told(NamedTuple):
    """Something that a follower was given."""

    events: list[dict[str, Any]]
    upto: int
    end: bool


def shown_of(record: Record) -> list[Shown]:
    """What a record shows; its body says how much, and of which it is a report."""
    count, report = record.body[0], record.body[1]
    return [Shown(record.position, number, record.stream, bool(report)) for number in range(count)]


def show(record: Record) -> Sequence[ChannelEvent]:
    """The same, as a channel has it."""
    return [
        ChannelEvent("x", record.mark, one.event, subject=one.stream, is_report=one.is_report)
        for one in shown_of(record)
    ]


def thinned(every: Sequence[Shown]) -> list[dict[str, Any]]:
    """What is told of some events at once: news of reports come with what follows on them."""
    told: list[dict[str, Any]] = []
    for number, one in enumerate(every):
        on_it = [each for each in every[:number] if each.stream == one.stream]
        reports = itertools.takewhile(lambda each: each.is_report, reversed(on_it))
        if not one.is_report or all(each.stream != one.stream for each in every[number + 1 :]):
            news = [each.event for each in reversed(list(reports))]
            told.append(
                {name: value for event in [*news, one.event] for name, value in event.items()}
            )
    return told


CHANNEL = Channel(name="x", about="", event=dict, names=frozenset({"x"}), show=show)


@dataclass
class Plan:
    """What is committed, in which pieces, and what is asked of it."""

    records: list[Record]
    commits: list[int]  # how many records each has
    tail: int
    where: Filter
    ends_with: str | None
    limit: int
    pulls: list[int]  # limits, one after the other and again
    takes: list[bool]  # whether a follower in a group takes a batch

    def selection(self) -> Selection:
        """What is asked."""
        return Selection(CHANNEL, self.where, self.ends_with, limit=self.limit)

    def passing(self, records: Sequence[Record]) -> list[list[Shown]]:
        """What each of some records shows, if it passes and shows anything."""
        passes = [r for r in records if self.where.matches(r) and r.name == "x"]
        return [shown for r in passes if (shown := shown_of(r))]

    def check(self, told: Sequence[Told]) -> None:
        """Compare what a follower was given with the log, one delivery after the other."""
        place = 0
        for events, upto, end in told:
            assert upto >= place, "the cursor went back"
            between = self.records[place:upto]
            each = self.passing(between)
            every = [event for shown in each for event in shown]
            assert events == thinned(every), (
                "something is missing, twice, or not thinned as it should be"
            )
            assert len(every) - len(each[-1] if each else ()) < self.limit, "too many at once"
            assert end == any(r.seal and r.stream == self.ends_with for r in between), "the end"
            place = upto
        seals = [r.position for r in self.records if r.seal and r.stream == self.ends_with]
        if seals:
            assert told[-1].end, "the end was not told"
        else:
            needed = [e for shown in self.passing(self.records[place:]) for e in shown]
            assert not needed, "some were never told"


@st.composite
def records(draw: Callable[[st.SearchStrategy[Any]], Any]) -> list[Record]:
    """Records of three streams; nothing follows in a stream after its seal."""
    drawn = draw(
        st.lists(
            st.tuples(
                st.sampled_from("abc"),
                st.sampled_from("xxxy"),
                st.integers(0, 3),
                st.booleans(),
                st.sampled_from([0, 0, 0, 0, 1]),
                st.sampled_from([0, 0, SIZE]),
            ),
            min_size=5,
            max_size=40,
        )
    )
    sealed: set[str] = set()
    made: list[Record] = []
    for stream, name, count, report, seal, size in drawn:
        if stream not in sealed:
            sealed |= {stream} if seal else set()
            body = bytes([count, report]) + bytes(size)
            made.append(record(len(made) + 1, stream, body, name=name, seal=seal))
    return made


def record(position: int, stream: str, body: bytes, *, name: str = "x", seal: int = 0) -> Record:
    """A record of a stream; two of the streams share a scope."""
    return Record(
        position=position,
        stream=stream,
        version=position,
        name=name,
        body=body,
        scope="s" if stream != "c" else "c",
        event_id=position.to_bytes(16, "big"),
        event_time=0,
        commit_time=0,
        schema=1,
        seal=seal,
        meta=NO_METADATA,
    )


FILTERS = [
    (EVERYTHING, None),
    (Filter(streams=frozenset("a")), "a"),
    (Filter(streams=frozenset("a")), None),
    (Filter(scopes=frozenset("s")), "a"),
    (Filter(scopes=frozenset("s"), names=frozenset("y")), "b"),
]


@st.composite
def plans(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Plan:
    """Anything that may happen."""
    few = st.integers(1, 7)
    where, ends_with = draw(st.sampled_from(FILTERS))
    return Plan(
        records=draw(records()),
        commits=draw(st.lists(st.sampled_from([1, 1, 2, 3, 7]), min_size=1, max_size=8)),
        tail=draw(st.sampled_from([3, 100])),
        where=where,
        ends_with=ends_with,
        limit=draw(st.sampled_from([1, 2, 4, 100])),
        pulls=draw(st.lists(few, min_size=1, max_size=5)),
        takes=draw(st.lists(st.sampled_from([True] * 4 + [False]), min_size=1, max_size=8)),
    )


class Log:
    """A log that a test commits to, and from whose store pages are read at once."""

    def __init__(self, plan: Plan) -> None:
        """Begin empty."""
        self.env: Any = SimpleNamespace(faults=None, monotonic=trio.current_time)
        self.tail = Tail(START, TailLimits(records=plan.tail))
        self._stored: list[Record] = []

    def commit(self, records: Sequence[Record]) -> None:
        """Write some records."""
        self._stored += records
        self.tail.extend(records)

    def cursor(self, mark: Mark) -> str:
        """Give the position, as text."""
        return str(mark.position)

    def raise_if_closed(self) -> None:
        """It never is."""

    async def read_where(self, where: Filter, after: int, bounds: Bounds) -> StoredPage:
        """Read a page; no index is used."""
        await trio.lowlevel.checkpoint()
        page = self._stored[after : after + bounds.records]
        return StoredPage(page, after + len(page) < len(self._stored), self.tail.head)


class Encoding:
    """A group's batch, as it is."""

    name = "plain"

    def group_batch(self, events: Sequence[ChannelEvent], cursor: str | None) -> Told:
        """Keep what is sent; whether it is the end is known when the group lets go."""
        return told(events, cursor, end=False)


def told(events: Sequence[ChannelEvent], cursor: str | None, *, end: bool) -> Told:
    """Write down what a follower is given."""
    assert cursor is not None
    return Told([event.as_event() for event in events], int(cursor), end)


@dataclass(eq=False)
class Client:
    """A follower that writes down what it is given."""

    plan: Plan
    subscription: Subscription
    groups: Groups | None  # None: it only ever pulls
    told: list[Told] = field(default_factory=list)

    async def follow(self) -> None:
        """Pull, and stand in a group while there is nothing to pull."""
        limits, takes = round_and_round(self.plan.pulls), round_and_round(self.plan.takes)

        def take(batch: Told, count: int) -> bool:
            assert count == len(batch.events)
            if not next(takes):
                return False
            self.told.append(batch)
            return True

        subscription, end = self.subscription, False
        while not end:
            events, cursor, live, end = await subscription.next_delivery(
                next(limits), wait=self.groups is None
            )
            self.told.append(told(events, cursor, end=end))
            if live and not end and self.groups is not None:
                await self.groups.serve(subscription, Encoding(), take)
                end = subscription.ended
                self.told[-1] = self.told[-1]._replace(end=end)


def round_and_round(values: Sequence[Any]) -> Iterator[Any]:
    """Give values again and again."""
    while True:
        yield from values


async def followed(plan: Plan) -> list[Client]:
    """Commit all there is, piece by piece, to one that pulls and some that may be pushed to."""
    log = Log(plan)
    limits = FollowLimits(bytes=SIZE, heartbeat=HEARTBEAT)
    groups = Groups(log, limits)

    def client(*, pushed: bool) -> Client:
        selection = plan.selection()
        follow = Follow(log, START, selection.read, limits)
        return Client(plan, Subscription(selection, follow), groups if pushed else None)

    clients = [client(pushed=False), client(pushed=True), client(pushed=True)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(groups.run)
        nursery.start_soon(clients[0].follow)
        nursery.start_soon(clients[1].follow)
        sizes, done = round_and_round(plan.commits), 0
        while done < len(plan.records):
            size = next(sizes)
            log.commit(plan.records[done : done + size])
            done += size
            if size % 2:  # else the next commit comes before anybody looked
                await wait_all_tasks_blocked()
        nursery.start_soon(clients[2].follow)  # the whole log lies behind it
        await trio.sleep(3 * HEARTBEAT)
        nursery.cancel_scope.cancel()
    return clients


def compare(plan: Plan) -> None:
    """Follow both ways, and compare what every client was told with the log."""
    clients = trio.run(followed, plan, clock=MockClock(autojump_threshold=0))
    for client in clients:
        plan.check(client.told)
    last = [client.told[-1] for client in clients if client.told]
    assert len({told.end for told in last}) <= 1, "one heard of the end and another did not"
    heads = {told.upto for told in last if not told.end}
    assert heads <= {len(plan.records)}, "a heartbeat did not come"
