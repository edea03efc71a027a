"""A feature: everything that belongs to some kinds of actors, as data that a node assembles.

    class Counters(Feature):
        name = "counters"

        def services(self):
            from .operations import CounterOperations
            return [CounterOperations]

A feature is asked for each part when that part is needed, and imports it then: ``perdure --help``
loads no event loop, and reading commands load no HTTP. What is open in a process is its ``Part``.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    import click
    import msgspec

    from perdure.actors.kind import Kind
    from perdure.eventlog.registry import EventRegistry
    from perdure.runtime.kernel.channels.channel import Channel
    from perdure.runtime.kernel.errors import ErrorKind
    from perdure.runtime.kernel.figures import Figure
    from perdure.runtime.kernel.listing import Listing
    from perdure.runtime.kernel.log_reader import LogReader
    from perdure.runtime.kernel.node import Foundation
    from perdure.runtime.kernel.routes.route import Route
    from perdure.runtime.kernel.settings import Settings


class Part:
    """A feature at work in a node."""

    services: Sequence[object] = ()  # whose operations are offered

    @property
    def busy(self) -> int:
        """How much work is being done."""
        return 0

    @property
    def waiting(self) -> int:
        """How much work waits for its turn."""
        return 0

    def close(self) -> None:
        """Take no new work and start nothing that waits; what goes on goes on."""

    async def at_rest(self, until: int) -> None:
        """Wait until all work that is left sleeps until after an instant."""

    def drain(self) -> None:
        """Let go of all work, for the next process to go on with."""

    async def settled(self) -> None:
        """Wait until no work is being done; after ``drain`` that is soon."""

    async def figures(self) -> Iterable[Figure]:
        """Give the figures that its operators see."""
        return ()

    def capabilities(self) -> Mapping[str, Any]:
        """Give its limits and other facts that clients want to know."""
        return {}


class Feature:
    """What a feature brings. Each method gives one part of it; none is needed."""

    name: ClassVar[str]
    tags: ClassVar[Mapping[str, str]] = {}  # of its routes, and what each is about

    def kinds(self) -> Sequence[Kind[Any, Any, Any]]:
        """Give its kinds of actors."""
        return ()

    def events(self) -> Sequence[EventRegistry]:
        """Give the events that it stores, besides those of its kinds."""
        return ()

    def services(self) -> Sequence[type]:
        """Give the classes whose marked methods are its operations."""
        return ()

    def channels(self) -> Sequence[Channel]:
        """Give what can be followed."""
        return ()

    def listings(self) -> Sequence[Listing]:
        """Give the projections that its lists are read from."""
        return ()

    def routes(self) -> Sequence[Route]:
        """Give its addresses over HTTP."""
        return ()

    def commands(self) -> Sequence[click.Command]:
        """Give its commands."""
        return ()

    def errors(self) -> Mapping[str, ErrorKind]:
        """Give the codes that it has declared."""
        return {}

    def settings(self) -> type[msgspec.Struct] | None:
        """Give the type that holds its settings."""
        return None

    def capabilities(self) -> Mapping[str, Any]:
        """Give the types of what its part adds to the capabilities, by name."""
        return {}

    def prepared(self, settings: Settings, warn: Callable[[str], None]) -> Feature:  # noqa: ARG002
        """Load what has to be loaded before a server starts; give the feature to open."""
        return self

    def open(self, foundation: Foundation) -> AbstractAsyncContextManager[Part]:  # noqa: ARG002
        """Bring the feature to work for the length of a block."""
        return nullcontext(Part())

    def reader(self, log: LogReader) -> Part:  # noqa: ARG002
        """Give the feature as it reads a log that another process may write.

        Its services only read, and wait only where the log does; its channels are opened on it.
        """
        return Part()
