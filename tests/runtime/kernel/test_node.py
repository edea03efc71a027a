"""A node that is stopped before it is open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from perdure.actors.run.events import RUN_EVENTS, Activated, Deactivated, RunCreated
from perdure.actors.run.stream import stream_of
from perdure.eventlog import MemoryStore, open_log
from perdure.eventlog.store import Bounds
from perdure.runtime.execution.recovery import recover
from perdure.runtime.kernel.feature import Feature, Part
from perdure.runtime.kernel.features import Features
from perdure.runtime.kernel.node import Foundation, open_node
from perdure.runtime.kernel.opening import StoppedOpening, unless_stopped
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs import part
from perdure.runtime.runs.feature import RunsFeature, open_run_node
from perdure.runtime.runs.part import RunResources
from tests.eventlog.conftest import SteadyEnv
from tests.runtime.service import service
from tests.runtime.world import Example


async def test_a_node_that_is_stopped_while_it_opens_drains_the_runs_it_has_taken_up(
    env: SteadyEnv, store: MemoryStore, autojump_clock: trio.testing.MockClock, monkeypatch: Any
) -> None:
    """They stay open for the next start, and it does not count as a crash of theirs."""
    async with service(store) as before:
        run_id = (await before.start("deaf"))["run_id"]
        await trio.sleep(1)
    stopping = trio.Event()

    async def without_end(*args: Any) -> int:
        await recover(*args)
        await trio.sleep(1)  # other runs are read; this one is executed
        stopping.set()
        return await trio.sleep_forever()

    monkeypatch.setattr(part, "recover", without_end)
    plugins = {"test": declared(Example)}
    with (
        pytest.RaisesGroup(StoppedOpening, allow_unwrapped=True, flatten_subgroups=True),
        trio.fail_after(60),
    ):
        async with (
            open_log(env, store) as log,
            open_run_node(log, plugins, stopping=stopping),
        ):
            pytest.fail("it is open")
    records = store.read_stream(stream_of(run_id), 0, Bounds()).records
    events = [type(RUN_EVENTS.decode(record)) for record in records]
    assert events == [RunCreated, Activated, Activated, Deactivated]


class Failing(Feature):
    """A feature that does not open, or only when it is too late."""

    name = "failing"

    def __init__(self, stopping: trio.Event | None) -> None:
        """Fail, or stop the node and never be open."""
        self._stopping = stopping

    @asynccontextmanager
    async def open(self, foundation: Foundation) -> AsyncIterator[Part]:
        """Take a moment, in which runs are executed."""
        await trio.sleep(1)
        if self._stopping is None:
            raise OSError("there is a directory in its place")
        self._stopping.set()
        await unless_stopped(partial(trio.sleep, 1000), foundation.stopping)
        yield Part()


@pytest.mark.parametrize("stops", [True, False])
async def test_runs_do_not_pay_for_a_feature_that_does_not_open(
    autojump_clock: trio.testing.MockClock, env: SteadyEnv, store: MemoryStore, stops: bool
) -> None:
    """Features that are open let go of their work, so that it is no crash of theirs."""
    async with service(store) as before:
        run_id = (await before.start("deaf"))["run_id"]
        await trio.sleep(1)
    stopping = trio.Event()
    resources = RunResources(plugins={"test": declared(Example)})
    features = Features([RunsFeature(resources), Failing(stopping if stops else None)])
    expected = StoppedOpening if stops else OSError
    opened = []
    with (
        pytest.RaisesGroup(expected, allow_unwrapped=True, flatten_subgroups=True),
        trio.fail_after(60),
    ):
        async with open_log(env, store) as log, open_node(log, features, stopping=stopping) as node:
            opened.append(node)
    assert opened == []
    records = store.read_stream(stream_of(run_id), 0, Bounds()).records
    events = [type(RUN_EVENTS.decode(record)) for record in records]
    assert events == [RunCreated, Activated, Activated, Deactivated]
