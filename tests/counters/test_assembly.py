"""Features put together: what clashes is refused, and what they share is everybody's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from trio.testing import MockClock

from perdure.eventlog import MemoryStore, open_log
from perdure.eventlog.filter import Filter
from perdure.runtime.kernel.actor_reader import ActorReader
from perdure.runtime.kernel.feature import Feature, Part
from perdure.runtime.kernel.features import Features
from perdure.runtime.kernel.listing import Listing
from perdure.runtime.kernel.node import Foundation, open_node
from perdure.runtime.kernel.operations import Dialect, Operations, operation, operations_of
from perdure.runtime.kernel.principal import Permission, Principal
from tests.counters.feature import CountersFeature, CountersPart
from tests.counters.listing import COUNTER_LISTING
from tests.counters.service import CounterPage, ListCounters
from tests.counters.test_counters import opened
from tests.eventlog.conftest import SteadyEnv
from tests.runtime.service import refused, service


def test_names_that_would_clash_in_files_and_addresses_are_refused() -> None:
    """Routes, commands and listings of two features are as much their own as operations are."""

    class Other(CountersFeature):
        name = "other"

    both = Features([CountersFeature(), Other()])
    for what in ("routes", "commands", "listings", "kinds"):
        with pytest.raises(ValueError, match=f"two features bring {what} called"):
            getattr(both, what)


async def test_a_listing_never_takes_the_file_of_another(autojump_clock: MockClock) -> None:
    """Neither that of another feature nor one of our own: a node with such features never opens."""

    class Logging(CountersFeature):
        def listings(self) -> Sequence[Listing]:
            return [replace(COUNTER_LISTING, name="log")]

    async with open_log(SteadyEnv(), MemoryStore()) as log:
        with pytest.raises(ValueError, match="may not be called 'log'"):
            await open_node(log, Features([Logging()])).__aenter__()


async def test_features_know_those_before_them_and_all_are_drained(
    autojump_clock: MockClock,
) -> None:
    """A feature is given the parts of the features before it; a node lets go of all of them."""
    seen: dict[str, Any] = {}

    class Last(Feature):
        name = "last"

        @asynccontextmanager
        async def open(self, foundation: Foundation) -> AsyncIterator[Part]:
            seen.update(foundation.parts)
            yield Drained()

    class Drained(Part):
        @property
        def busy(self) -> int:
            return 3

        def drain(self) -> None:
            seen["drained"] = True

    async with open_log(SteadyEnv(), MemoryStore()) as log:
        features = Features([CountersFeature(), Last()])
        async with open_node(log, features) as node:
            assert seen == {"counters": node.part(CountersPart)}
            assert node.busy == 3
            node.drain()
            assert seen["drained"]
            assert node.closing.is_set()


async def test_a_dialect_speaks_of_permissions_too(autojump_clock: MockClock) -> None:
    """Whatever refuses a call, its code has the name that the dialect gives it."""

    class Shy:
        @operation("shy.ask", Permission.RUN, dialect=Dialect({"PERMISSION_DENIED": "BAD_COUNT"}))
        async def ask(self, principal: Principal, request: ListCounters) -> CounterPage:
            """Ask."""
            return {"counter_ids": [], "cursor": ""}

    operations = Operations(operations_of(Shy), [Shy()])
    reader = Principal("local", "local", frozenset({Permission.READ}))
    await refused("BAD_COUNT", partial(operations.call, reader, "shy.ask", {}))


async def test_our_own_log_says_what_a_call_was_about(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that breaks is logged with the id of what it was about."""

    async def broken(*_: Any) -> None:
        raise ZeroDivisionError

    async with service() as s:
        counter_id = await opened(s)
        monkeypatch.setattr(ActorReader, "read", broken)
        await refused("INTERNAL", partial(s.call, "counters.get", {"counter_id": counter_id}))
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.__dict__["counter_id"] == counter_id


def test_filters_differ_by_scope() -> None:
    """Followers of two scopes want different things, whatever else they have in common."""
    one, other = (Filter(scopes=frozenset({scope})) for scope in ("counter/1", "counter/2"))
    assert one.key != other.key
    assert one.key == Filter(scopes=frozenset({"counter/1"})).key
    assert (one & other).scopes == frozenset()
