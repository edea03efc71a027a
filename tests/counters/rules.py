"""The rules of a counter: it counts what it is told to, and knows how its runs have ended."""

from __future__ import annotations

from typing import ClassVar, Final, assert_never

from msgspec import Struct, structs

from perdure.actors.decider import Decider, Origin
from perdure.actors.errors import Refusal
from perdure.actors.kind import Kind
from perdure.actors.run.events import RUN_EVENTS, RunCreated, RunEnded
from perdure.eventlog.registry import EventRegistry

COUNTER_EVENTS: Final = EventRegistry()


@COUNTER_EVENTS.register
class CounterOpened(Struct, frozen=True, kw_only=True):
    """A counter exists."""

    event_name: ClassVar[str] = "counter.opened"
    counter_id: str
    tenant: str
    limit: int
    at: int


@COUNTER_EVENTS.register
class Counted(Struct, frozen=True, kw_only=True):
    """It has counted on, while so many of its runs were open."""

    event_name: ClassVar[str] = "counter.counted"
    by: int
    open_runs: int
    at: int


@COUNTER_EVENTS.register
class CounterClosed(Struct, frozen=True, kw_only=True):
    """It counts no more."""

    event_name: ClassVar[str] = "counter.closed"
    at: int


CounterEvent = CounterOpened | Counted | CounterClosed


class Count(Struct, frozen=True, kw_only=True):
    """Count on."""

    by: int
    at: int


class Close(Struct, frozen=True, kw_only=True):
    """Count no more."""

    at: int


class Counter(Struct, frozen=True, kw_only=True):
    """A counter, and the runs in its scope."""

    opened: CounterOpened
    count: int = 0
    closed: bool = False
    runs: dict[str, str] = {}
    seen: int = 0  # the position of the newest event that counts
    moved_at: int = 0  # when it was committed

    @property
    def open_runs(self) -> int:
        """How many of its runs have not ended."""
        return sum(outcome == "open" for outcome in self.runs.values())


class LimitReached(Refusal):
    """A counter counts no further than its limit."""

    def __init__(self, limit: int) -> None:
        """Name it."""
        super().__init__(f"this counter ends at {limit}")
        self.limit = limit


def decide(counter: Counter, command: Count | Close) -> tuple[CounterEvent, ...]:
    """Count on, unless the limit or the end is reached."""
    match command:
        case Count(by=by, at=at):
            if counter.closed or counter.count + by > counter.opened.limit:
                raise LimitReached(counter.opened.limit)
            return (Counted(by=by, open_runs=counter.open_runs, at=at),)
        case Close(at=at):
            return () if counter.closed else (CounterClosed(at=at),)
        case _:
            assert_never(command)


def evolve(
    counter: Counter | None, event: CounterEvent | RunCreated | RunEnded, origin: Origin
) -> Counter:
    """Fold an event of the counter, or of a run in its scope."""
    if isinstance(event, CounterOpened):
        return Counter(opened=event, seen=origin.position, moved_at=origin.commit_time)
    assert counter is not None  # its scope begins with it
    place = {"seen": origin.position, "moved_at": origin.commit_time}
    match event:
        case Counted(by=by):
            return structs.replace(counter, count=counter.count + by, **place)
        case CounterClosed():
            return structs.replace(counter, closed=True, **place)
        case RunCreated():
            return structs.replace(counter, runs={**counter.runs, origin.stream: "open"}, **place)
        case RunEnded(outcome=outcome):
            runs = {**counter.runs, origin.stream: str(outcome)}
            return structs.replace(counter, runs=runs, **place)
        case _:
            assert_never(event)


COUNTER: Final = Decider(
    state=Counter,
    initial=None,
    decide=decide,
    evolve=evolve,
    describe=lambda before, after: {
        "tenant": after.opened.tenant,
        "counter_id": after.opened.counter_id,
        "changed": before is None or before.closed != after.closed,
    },
    is_over=lambda counter: counter.closed,
    events=COUNTER_EVENTS,
    fold="counter-1",
    neighbours=dict.fromkeys((RunCreated.event_name, RunEnded.event_name), RUN_EVENTS),
)


def view(counter: Counter) -> dict[str, object]:
    """Give what people and programs see of a counter."""
    return {
        "counter_id": counter.opened.counter_id,
        "count": counter.count,
        "closed": counter.closed,
        "runs": dict(sorted(counter.runs.items())),
    }


COUNTER_KIND: Final = Kind(
    name="counter",  # the scope of counter 1 is counter/1, and runs may be created in it
    decider=COUNTER,
    view=lambda folded: view(folded.state),
    tenant=lambda counter: counter.opened.tenant,
    not_found="COUNTER_NOT_FOUND",
)
