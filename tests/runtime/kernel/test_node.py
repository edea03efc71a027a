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
from perdure.runtime.kernel.opening import StartUp, StoppedOpening
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs import part
from perdure.runtime.runs.feature import RunsFeature, open_run_node
from perdure.runtime.runs.part import RunResources, runs_of
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
    start_up = StartUp()

    async def without_end(*args: Any) -> int:
        await recover(*args)
        await trio.sleep(1)  # other runs are read; this one is executed
        start_up.stopping.set()
        return await trio.sleep_forever()

    monkeypatch.setattr(part, "recover", without_end)
    plugins = {"test": declared(Example)}
    with (
        pytest.RaisesGroup(StoppedOpening, allow_unwrapped=True, flatten_subgroups=True),
        trio.fail_after(60),
    ):
        async with (
            open_log(env, store) as log,
            open_run_node(log, plugins, start_up=start_up),
        ):
            pytest.fail("it is open")
    records = store.read_stream(stream_of(run_id), 0, Bounds()).records
    events = [type(RUN_EVENTS.decode(record)) for record in records]
    assert events == [RunCreated, Activated, Activated, Deactivated]


class Failing(Feature):
    """A feature that does not open, or only when it is too late."""

    name = "failing"

    def __init__(self, *, stops: bool) -> None:
        """Fail, or stop the node and never be open."""
        self._stops = stops

    @asynccontextmanager
    async def open(self, foundation: Foundation) -> AsyncIterator[Part]:
        """Take a moment, in which runs are executed."""
        await trio.sleep(1)
        if not self._stops:
            raise OSError("there is a directory in its place")
        foundation.start_up.stopping.set()
        await foundation.start_up.unless_stopped(partial(trio.sleep, 1000))
        yield Part()


@pytest.mark.parametrize("stops", [True, False])
async def test_runs_do_not_pay_for_a_feature_that_does_not_open(
    autojump_clock: trio.testing.MockClock, env: SteadyEnv, store: MemoryStore, stops: bool
) -> None:
    """Features that are open let go of their work, so that it is no crash of theirs."""
    async with service(store) as before:
        run_id = (await before.start("deaf"))["run_id"]
        await trio.sleep(1)
    resources = RunResources(plugins={"test": declared(Example)})
    features = Features([RunsFeature(resources), Failing(stops=stops)])
    expected = StoppedOpening if stops else OSError
    opened = []
    with (
        pytest.RaisesGroup(expected, allow_unwrapped=True, flatten_subgroups=True),
        trio.fail_after(60),
    ):
        async with open_log(env, store) as log, open_node(log, features) as node:
            opened.append(node)
    assert opened == []
    records = store.read_stream(stream_of(run_id), 0, Bounds()).records
    events = [type(RUN_EVENTS.decode(record)) for record in records]
    assert events == [RunCreated, Activated, Activated, Deactivated]


async def test_a_node_is_open_before_all_runs_are_taken_up(
    env: SteadyEnv,
    store: MemoryStore,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many there are; its start-up says how many were, and of how many."""
    async with service(store) as before:
        for _ in range(40):
            await before.start("question")
        await trio.sleep(30)
    monkeypatch.setattr(part, "OPENING", 0.5)
    env.delay = 0.1
    begun = trio.current_time()
    async with open_log(env, store) as log:
        runs = RunsFeature(RunResources(plugins={"test": declared(Example)}))
        async with open_node(log, Features([runs])) as node:
            assert trio.current_time() - begun < 3
            seen = []
            while progress := node.start_up.progress:
                seen += [each for each in progress if each["what"] == "runs taken up"]
                await trio.sleep(0.1)
            await trio.sleep(30)
            executor = runs_of(node).executor
            assert executor.running + executor.waiting == 40
    assert seen[0]["done"] < seen[0]["of"] == 40
