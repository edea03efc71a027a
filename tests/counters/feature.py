"""Counters as a feature."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, ClassVar, TypedDict

import click
import msgspec
import trio

from perdure.actors.kind import Kind
from perdure.eventlog.filter import Filter
from perdure.eventlog.record import Mark, Record
from perdure.runtime.client.choice import Choice
from perdure.runtime.client.client import Caller
from perdure.runtime.kernel.actor_reader import ActorReader
from perdure.runtime.kernel.channels.channel import Channel, EventRoute, Filters, Opening
from perdure.runtime.kernel.channels.event import ChannelEvent
from perdure.runtime.kernel.errors import ErrorKind
from perdure.runtime.kernel.feature import Feature, Part
from perdure.runtime.kernel.figures import Figure, figure
from perdure.runtime.kernel.listing import Listing
from perdure.runtime.kernel.live_actors import LiveActors
from perdure.runtime.kernel.log_reader import LogReader
from perdure.runtime.kernel.node import Foundation
from perdure.runtime.kernel.operations import operations_of
from perdure.runtime.kernel.principal import Principal
from perdure.runtime.kernel.requests import Name
from perdure.runtime.kernel.routes.operation_route import operation_route
from perdure.runtime.kernel.routes.route import Route
from perdure.runtime.kernel.settings import About, Count
from perdure.runtime.kernel.terminal.command import Command, common
from perdure.runtime.kernel.terminal.invocation import Invocation, pass_invocation
from perdure.runtime.kernel.terminal.text import Column, table
from tests.counters.listing import COUNTER_LISTING
from tests.counters.rules import COUNTER_EVENTS, COUNTER_KIND, Counted, CounterClosed
from tests.counters.service import COUNTER_ERRORS, CounterReads, Counters

OPERATIONS = operations_of(Counters)


CHANGES = frozenset({Counted.event_name, CounterClosed.event_name})


class CounterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of counters."""

    counter_limit: Annotated[Count, About(description="how far a counter counts")] = 1000


class Tick(TypedDict):
    """A counter has counted one further."""

    counter_id: str
    tick: int


class CounterFilters(Filters):
    """Which counters are followed."""

    counter_id: Name | None = None

    async def open(self, part: CountersPart, principal: Principal) -> Opening:
        """Let one counter pass, until it is closed, or all."""
        if self.counter_id is None:
            return Opening(where=Filter())
        await part.reader.require(principal, self.counter_id)
        stream = COUNTER_KIND.stream(self.counter_id)

        async def has_ended(at: Mark) -> bool:
            folded = await part.reader.at(principal, str(self.counter_id), at)
            return bool(folded.state.closed)

        return Opening(
            where=Filter(scopes=frozenset({stream})), ends_with=stream, has_ended=has_ended
        )


def ticks(record: Record) -> Sequence[ChannelEvent]:
    """Show each step of what was counted: a record gives as many events as it counts."""
    if record.name != Counted.event_name:
        return ()
    counted: Counted = COUNTER_EVENTS.decode(record)
    counter_id = record.stream.partition("/")[2]
    return [
        ChannelEvent("tick", record.mark, {"counter_id": counter_id, "tick": number})
        for number in range(1, counted.by + 1)
    ]


TICKS = Channel(
    name="ticks",
    about="steps of counters",
    event=Tick,
    names=CHANGES,
    show=ticks,
    filters=CounterFilters,
    errors=("COUNTER_NOT_FOUND",),
    routes=(
        EventRoute(
            path="/events/ticks",
            name="events.ticks",
            summary="Follow counters, as server-sent events.",
        ),
        EventRoute(
            path="/counters/{counter_id}/events",
            name="events.counter",
            summary="Follow one counter until it is closed.",
        ),
    ),
)
ROUTES = (
    operation_route(
        "POST",
        "/counters",
        OPERATIONS["counters.open"],
        tag="counters",
        example={"name": "steps"},
    ),
    operation_route("GET", "/counters", OPERATIONS["counters.list"], tag="counters"),
    operation_route("GET", "/counters/{counter_id}", OPERATIONS["counters.get"], tag="counters"),
    operation_route(
        "POST",
        "/counters/{counter_id}/count",
        OPERATIONS["counters.count"],
        tag="counters",
        example={"by": 3},
    ),
    operation_route(
        "POST", "/counters/{counter_id}/close", OPERATIONS["counters.close"], tag="counters"
    ),
)


@click.command(cls=Command, short_help="List counters.", examples=["perdure counters"])
@common
@pass_invocation
def counters(invocation: Invocation) -> None:
    """List counters, with their counts."""
    found = Choice(invocation).asked(_all)
    if invocation.json:
        invocation.give({"counters": found})
    else:
        rows = [(each["counter_id"], str(each["count"])) for each in found]
        columns = (Column("COUNTER"), Column("COUNT", right=True))
        invocation.lines(table(columns, rows, invocation.width))


async def _all(caller: Caller) -> list[Any]:
    """Read all counters."""
    page = await caller.call("counters.list", {})
    asked = [{"counter_id": counter_id} for counter_id in page["counter_ids"]]
    return [(await caller.call("counters.get", each))["counter"] for each in asked]


class CountersPart(Part):
    """Counters at work in a node."""

    def __init__(self, foundation: Foundation, actors: LiveActors[Any, Any, Any]) -> None:
        """Offer the operations on counters."""
        log, listing = foundation.log, foundation.listings[COUNTER_LISTING.name]
        self.actors = actors
        self.reader = ActorReader(COUNTER_KIND, log, actors)
        limit = foundation.settings.of(CounterSettings).counter_limit
        self.services = [Counters(log, actors, listing, limit=limit)]

    async def figures(self) -> Iterable[Figure]:
        """Give how many counters live."""
        return [figure("counters_live", "gauge", "Counters in memory.", self.actors.live)]

    def capabilities(self) -> Mapping[str, Any]:
        """Say what counting means."""
        return {"limits": {"count": 1000}, "counts": "up"}


class CountersFeature(Feature):
    """Counters."""

    name = "counters"
    tags: ClassVar[Mapping[str, str]] = {"counters": "Count."}

    def kinds(self) -> Sequence[Kind[Any, Any, Any]]:
        """Counters are actors."""
        return [COUNTER_KIND]

    def services(self) -> Sequence[type]:
        """What can be asked."""
        return [Counters]

    def channels(self) -> Sequence[Channel]:
        """What can be followed."""
        return [TICKS]

    def listings(self) -> Sequence[Listing]:
        """What can be listed."""
        return [COUNTER_LISTING]

    def routes(self) -> Sequence[Route]:
        """Where it is, over HTTP."""
        return ROUTES

    def commands(self) -> Sequence[click.Command]:
        """What can be typed."""
        return [counters]

    def errors(self) -> Mapping[str, ErrorKind]:
        """What can go wrong."""
        return COUNTER_ERRORS

    def settings(self) -> type[msgspec.Struct]:
        """What can be set."""
        return CounterSettings

    def capabilities(self) -> Mapping[str, Any]:
        """What clients are told."""
        return {"counts": str}

    @asynccontextmanager
    async def open(self, foundation: Foundation) -> AsyncIterator[Part]:
        """Let counters live."""
        actors: LiveActors[Any, Any, Any] = LiveActors(
            COUNTER_KIND, log=foundation.log, env=foundation.env
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(actors.run)
            yield CountersPart(foundation, actors)
            nursery.cancel_scope.cancel()

    def reader(self, log: LogReader) -> Part:
        """What can be read without an event loop."""
        reader = ActorReader(COUNTER_KIND, log.log)
        part = Part()
        part.services = [CounterReads(log.log, reader, log.listing(COUNTER_LISTING))]
        return part
