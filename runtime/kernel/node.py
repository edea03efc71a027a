"""A node: one process at work on one log, with the features that it is given.

    async with open_node(log, features) as node:
        await node.operations.call(LOCAL, "runs.create", {...})

Leaving the block ends the process's work as a crash would: the next node goes on from the log. To
let go of work in good order, drain the node before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from perdure.eventlog.log import EventLog
from perdure.runtime.kernel.channels import Channels
from perdure.runtime.kernel.channels.log_channel import LOG
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.feature import Part
from perdure.runtime.kernel.features import Features
from perdure.runtime.kernel.listing import ListingFile
from perdure.runtime.kernel.live_listing import LiveListing
from perdure.runtime.kernel.opening import StartUp
from perdure.runtime.kernel.operations import Operations
from perdure.runtime.kernel.projection import IN_MEMORY
from perdure.runtime.kernel.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from perdure.eventlog.env import Env
    from perdure.runtime.kernel.channels.channel import Filters
    from perdure.runtime.kernel.feature import Feature

MAKING: Final = 8  # large answers at the same time: each may take some MiB until it is sent
LISTING: Final = 4  # lists likewise; as many are queried at the same time
LETTING_GO: Final = 5.0  # seconds that work which was let go of gets to notice
SomePart = TypeVar("SomePart", bound=Part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundation:
    """What a feature is opened on."""

    log: EventLog
    settings: Settings
    data: DataDir | None  # None: nothing but the log outlives the process
    listings: Mapping[str, LiveListing]  # its own, by name
    parts: Mapping[str, Part]  # those of the features before it
    start_up: StartUp

    @property
    def env(self) -> Env:
        """The world as the log sees it."""
        return self.log.env


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What a process consists of."""

    log: EventLog
    features: Features
    parts: Mapping[str, Part]
    listings: Mapping[str, LiveListing]  # of all features, by name
    operations: Operations
    channels: Channels
    making: trio.CapacityLimiter  # what is large, so that others come in between
    start_up: StartUp  # which may still have something to do
    leaving: trio.Event = field(default_factory=trio.Event)  # set when followers are to go
    closing: trio.Event = field(default_factory=trio.Event)  # set when no new work is taken

    @property
    def env(self) -> Env:
        """The world as the log sees it."""
        return self.log.env

    def part(self, kind: type[SomePart]) -> SomePart:
        """Give a feature at work by the type of its part."""
        return next(part for part in self.parts.values() if isinstance(part, kind))

    @property
    def busy(self) -> int:
        """How much work is being done."""
        return sum(part.busy for part in self.parts.values())

    @property
    def waiting(self) -> int:
        """How much work waits for its turn."""
        return sum(part.waiting for part in self.parts.values())

    def close(self) -> None:
        """Take no new work and start nothing that waits; what goes on goes on."""
        self.closing.set()
        for part in self.parts.values():
            part.close()

    async def at_rest(self, until: int) -> None:
        """Wait until all work that is left sleeps until after an instant."""
        for part in self.parts.values():
            await part.at_rest(until)

    def drain(self) -> None:
        """Let go of all work, for the next process to go on with."""
        self.close()
        for part in self.parts.values():
            part.drain()

    async def settled(self) -> None:
        """Wait until no work is being done."""
        for part in self.parts.values():
            await part.settled()


@asynccontextmanager
async def open_node(
    log: EventLog,
    features: Features,
    *,
    settings: Settings | None = None,
    data: DataDir | None = None,
    start_up: StartUp | None = None,
) -> AsyncIterator[Node]:
    """Take up what an earlier process left, and work for the length of a block.

    Features are opened in their order. Without a data directory what they keep beside the log is
    in memory. ``start_up`` shows how far this has come. If it is stopped before the node is open,
    work that was taken up is let go of, so that the stop does not count as a crash, and
    StoppedOpening is raised.
    """
    settings, parts = settings or Settings(), dict[str, Part]()
    listings = dict[str, LiveListing]()
    start_up = start_up or StartUp()
    _ = features.listings  # refuses two of one name before either opens its file
    async with (
        AsyncExitStack() as files,  # closed when no task uses them any more
        trio.open_nursery() as nursery,
        AsyncExitStack() as stack,
    ):
        try:
            for feature in features:
                await start_up.unless_stopped(trio.lowlevel.checkpoint)
                own = _listings(feature, log, data, nursery, files)
                for listing in own.values():
                    start_up.watch(*listing.catching_up())
                listings.update(own)
                foundation = Foundation(
                    log=log,
                    settings=settings,
                    data=data,
                    listings=own,
                    parts=dict(parts),
                    start_up=start_up,
                )
                parts[feature.name] = await stack.enter_async_context(feature.open(foundation))
        except Exception:
            await _let_go(parts.values())  # or it would count as a crash of what they have resumed
            raise
        channels = Channels(log, features.channels, parts_by_channel(features, parts))
        making = trio.CapacityLimiter(MAKING)
        services = [service for part in parts.values() for service in part.services]
        yield Node(
            log=log,
            features=features,
            parts=parts,
            listings=listings,
            operations=Operations(
                features.operations,
                [*services, channels],
                subjects=[kind.id_field for kind in features.kinds],
                pages={"contents": making, "list": trio.CapacityLimiter(LISTING)},
            ),
            channels=channels,
            making=making,
            start_up=start_up,
        )
        log.writer.give_up_when_stalled()
        nursery.cancel_scope.cancel()


async def _let_go(parts: Collection[Part]) -> None:
    """Let go of all work of features that were open already."""
    for part in parts:
        part.drain()
    with trio.move_on_after(LETTING_GO):
        for part in parts:
            await part.settled()


def _listings(
    feature: Feature,
    log: EventLog,
    data: DataDir | None,
    nursery: trio.Nursery,
    files: AsyncExitStack,
) -> Mapping[str, LiveListing]:
    """Open the listings of a feature, and let them follow the log."""
    live: dict[str, LiveListing] = {}
    for listing in feature.listings():
        path = IN_MEMORY if data is None else data.listing(listing.name)
        tables = files.enter_context(closing(ListingFile(listing, path)))
        live[listing.name] = LiveListing(log, tables)
        nursery.start_soon(live[listing.name].run)
    return live


def parts_by_channel(features: Features, parts: Mapping[str, Part]) -> Mapping[str, Any]:
    """Say which feature at work each channel belongs to; the log's takes the filters of all."""
    owned = [(channel, parts[each.name]) for each in features for channel in each.channels()]
    by_filters: dict[type[Filters], Part] = {}
    for channel, part in owned:
        by_filters.setdefault(channel.filters, part)  # those that came first have brought them
    return {LOG: by_filters, **{channel.name: part for channel, part in owned}}
