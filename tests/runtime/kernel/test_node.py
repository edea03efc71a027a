"""A node that is stopped before it is open."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from perdure.actors.run.events import RUN_EVENTS, Activated, Deactivated, RunCreated
from perdure.actors.run.stream import stream_of
from perdure.eventlog import MemoryStore, open_log
from perdure.eventlog.store import Bounds
from perdure.runtime.execution.recovery import recover
from perdure.runtime.kernel.opening import StoppedOpening
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs import part
from perdure.runtime.runs.feature import open_run_node
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
