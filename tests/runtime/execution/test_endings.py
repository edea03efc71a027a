"""How an entry ends, whatever it raises: its run has an end, and nobody else is hurt."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.events import RunCreated
from perdure.actors.run.stream import stream_of
from perdure.eventlog import Append, MemoryStore
from perdure.runtime.execution.creator import first_write
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared, entry, plugin
from perdure.runtime.plugins.run_context import RunContext, SyncRunContext
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CancelRun
from tests.runtime.execution.test_current_run import PLUGINS, Scripted, ran
from tests.runtime.service import real_service, refused, service


def script(body: Any) -> None:
    """Say what the entry does."""
    Scripted.body = staticmethod(body)


class Panic(BaseException):
    """What some libraries raise that are written in other languages."""


@pytest.mark.parametrize(
    "error", [SystemExit, KeyboardInterrupt, Panic, GeneratorExit, asyncio.CancelledError]
)
async def test_an_entry_that_raises_what_ends_programs_fails_its_run(
    autojump_clock: MockClock, error: type[BaseException]
) -> None:
    """Alone, in one of its tasks, or in a thread; the host goes on, and it is not called again."""

    async def alone(ctx: RunContext) -> None:
        raise error("enough")

    async def in_a_task(ctx: RunContext) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(alone, ctx)
            await trio.sleep(10)

    async def in_a_step(ctx: RunContext) -> None:
        await ctx.run.step("it", alone, ctx)

    for body in (alone, in_a_task, in_a_step):
        end = await ran(body)
        assert end.record["status"] == "failed"
        assert end.error[0] == "PLUGIN_ERROR"
        assert error.__name__ in end.error[1]


@plugin("test")
class Threaded:
    """Raises in a thread."""

    @entry(where="thread")
    def interrupt(self, ctx: SyncRunContext) -> None:
        """Raise what ends programs."""
        raise KeyboardInterrupt


async def test_a_thread_that_raises_what_ends_programs_fails_its_run() -> None:
    """And the host goes on."""
    async with real_service({"test": declared(Threaded)}) as s:
        for _ in range(2):
            end = await s.finished((await s.start("interrupt"))["run_id"])
            assert end["error"] is not None
            assert end["error"]["code"] == "PLUGIN_ERROR"


@pytest.mark.parametrize("how", ["deadline", "force", "leave"])
async def test_what_fails_while_it_is_stopped_does_not_count(
    autojump_clock: MockClock, how: str
) -> None:
    """Out of time is timeout, forced is canceled, and a node that goes down says nothing."""

    async def body(ctx: RunContext) -> None:
        try:
            await trio.sleep(1000)
        finally:
            raise ValueError("in the clean-up")

    script(body)
    store = MemoryStore()
    async with service(store, PLUGINS) as s:
        run_id = (await s.start("go", timeout=10.0 if how == "deadline" else None))["run_id"]
        await trio.sleep(5)
        if how == "force":
            await s.cancel(LOCAL, CancelRun(run_id=run_id, force=True))
        if how != "leave":
            end = await s.finished(run_id)
            assert end["status"] == {"deadline": "timeout", "force": "canceled"}[how]
    if how == "leave":
        assert not store.stream_state(stream_of(run_id)).sealed


async def test_a_timeout_has_its_bounds(autojump_clock: MockClock) -> None:
    """No number of a request makes a record that cannot be shown."""
    async with service() as s:
        request = {"plugin_id": "test", "entry_id": "greet", "args": {}, "timeout": 1e300}
        await refused("VALIDATION_ERROR", partial(s.call, "runs.create", request))
        created = RunCreated(
            run_id="x",
            plugin_id="test",
            entry_id="greet",
            args={},
            tenant="local",
            principal="local",
            root_run_id="x",
            attempt=1,
            at=0,
            timeout=1e300,
        )
        await s.node.log.append(Append([first_write(s.node.env, created)]))
        runs_of(s.node).executor.dispatch("x", "test")
        assert (await s.finished("x"))["deadline"] is not None
