"""The features of a process, put together: one table of each thing that they bring."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import click
    import msgspec

    from perdure.actors.kind import Kind
    from perdure.eventlog.record import Record
    from perdure.eventlog.registry import EventRegistry
    from perdure.runtime.kernel.channels.channel import Channel
    from perdure.runtime.kernel.errors import ErrorKind
    from perdure.runtime.kernel.feature import Feature
    from perdure.runtime.kernel.listing import Listing
    from perdure.runtime.kernel.operations import Operation
    from perdure.runtime.kernel.routes.route import Route
    from perdure.runtime.kernel.settings import Settings

Value = TypeVar("Value")


class Features:
    """Some features, each of which may know those before it."""

    def __init__(self, features: Iterable[Feature]) -> None:
        """Nothing of them is imported before somebody asks for it."""
        self._features = tuple(features)
        names = [feature.name for feature in self._features]
        if len(set(names)) < len(names):
            raise ValueError(f"two features have the same name: {', '.join(names)}")

    def __iter__(self) -> Iterator[Feature]:
        """Go through the features, in their order."""
        return iter(self._features)

    def replacing(self, *others: Feature) -> Features:
        """Give the same features, with others in the places of those with their names."""
        named = {feature.name: feature for feature in others}
        return Features(named.get(feature.name, feature) for feature in self)

    def prepared(self, settings: Settings, warn: Callable[[str], None]) -> Features:
        """Load what has to be loaded before a server starts."""
        return Features(feature.prepared(settings, warn) for feature in self)

    @cached_property
    def kinds(self) -> Sequence[Kind[Any, Any, Any]]:
        """All kinds of actors."""
        kinds = [kind for feature in self for kind in feature.kinds()]
        return list(_by_name("kinds", ((kind.name, kind) for kind in kinds)).values())

    @cached_property
    def events(self) -> Sequence[EventRegistry]:
        """The registries of all events that are stored."""
        from perdure.actors.claim import CLAIM_EVENTS  # noqa: PLC0415 - as below

        registries = [kind.decider.events for kind in self.kinds]
        return [*registries, CLAIM_EVENTS, *(each for one in self for each in one.events())]

    def know(self, record: Record) -> bool:
        """Tell whether this release knows a record's event; if not, a newer one has written it."""
        return any(registry.knows(record) for registry in self.events)

    @cached_property
    def channels(self) -> Mapping[str, Channel]:
        """All channels by name, the kernel's own among them."""
        from perdure.runtime.kernel.channels.log_channel import log_channel  # noqa: PLC0415

        channels = [channel for feature in self for channel in feature.channels()]
        channels.append(log_channel(channels))
        return _by_name("channels", ((channel.name, channel) for channel in channels))

    @cached_property
    def operations(self) -> Mapping[str, Operation]:
        """The whole table of operations."""
        from perdure.runtime.kernel.channels.service import follow_operation  # noqa: PLC0415
        from perdure.runtime.kernel.operations import operations_of  # noqa: PLC0415

        rows = [
            row
            for feature in self
            for service in feature.services()
            for row in operations_of(service).values()
        ]
        rows.append(follow_operation(self.channels.values()))
        table = _by_name("operations", ((row.name, row) for row in rows))
        for row in rows:
            for code in row.errors:
                if code not in self.errors:
                    raise ValueError(f"{row.name} may answer with {code}, which is not declared")
        return dict(sorted(table.items()))

    @cached_property
    def routes(self) -> Sequence[Route]:
        """The addresses of all features, those of the first ones first."""
        routes = [route for feature in self for route in feature.routes()]
        return list(_by_name("routes", ((f"{r.method} {r.path}", r) for r in routes)).values())

    @cached_property
    def commands(self) -> Sequence[click.Command]:
        """The commands of all features, in the order in which people meet them."""
        commands = [command for feature in self for command in feature.commands()]
        return list(_by_name("commands", ((str(each.name), each) for each in commands)).values())

    @cached_property
    def listings(self) -> Mapping[str, Listing]:
        """All listings by name, which is that of a file."""
        from perdure.runtime.kernel.data_directory import OWN_FILES  # noqa: PLC0415 - as above

        listings = [listing for feature in self for listing in feature.listings()]
        for listing in listings:
            if listing.name in OWN_FILES:
                raise ValueError(
                    f"a listing may not be called {listing.name!r}, as a file of ours is"
                )
        return _by_name("listings", ((listing.name, listing) for listing in listings))

    @cached_property
    def errors(self) -> Mapping[str, ErrorKind]:
        """The codes that this process may answer with."""
        from perdure.runtime.kernel.errors import KERNEL_ERRORS  # noqa: PLC0415

        declared = (pair for feature in self for pair in feature.errors().items())
        return {**KERNEL_ERRORS, **dict(declared)}

    @cached_property
    def settings(self) -> Sequence[type[msgspec.Struct]]:
        """The groups of settings that features have."""
        return [group for feature in self if (group := feature.settings()) is not None]

    @cached_property
    def tags(self) -> Mapping[str, str]:
        """What the tags of routes are about."""
        return {tag: about for feature in self for tag, about in feature.tags.items()}

    @cached_property
    def capabilities(self) -> Mapping[str, Any]:
        """The types of what features add to the capabilities, by name."""
        added = (pair for feature in self for pair in feature.capabilities().items())
        return _by_name("capabilities", added)


def _by_name(what: str, pairs: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"two features bring {what} called {name!r}")
        found[name] = value
    return found
