"""A host in virtual time with a plugin that does a bit of everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from perdure.actors.run.core import Run
from perdure.actors.run.events import RUN_EVENTS, RunCreated
from perdure.actors.run.stream import stream_of
from perdure.eventlog import Append, MemoryStore, open_log
from perdure.eventlog.store import Bounds
from perdure.runtime.execution.creator import first_write
from perdure.runtime.execution.executor import Executor
from perdure.runtime.execution.host_context import host_context
from perdure.runtime.execution.limits import HostLimits
from perdure.runtime.execution.recovery import drop_old_seals, recover
from perdure.runtime.plugins.contract import PluginError, Retry, RunCancelled
from perdure.runtime.plugins.plugin import declared, entry, plugin
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.runs.index import Listed
from tests.eventlog.conftest import SteadyEnv

CALLS: list[str] = []


@plugin("test", version="1", limit=3)
class Example:
    """Entries of every kind."""

    @entry
    async def greet(self, ctx: RunContext, name: str = "you") -> str:
        """Return a value."""
        return f"hello {name}"

    @entry
    async def fail(self, ctx: RunContext, code: str | None = None) -> dict[str, Any]:
        """Raise, or return an error envelope."""
        if code == "ENVELOPE":
            return {"ok": False, "error": {"code": "MINE", "message": "m", "details": {"a": 1}}}
        if code:
            raise PluginError(code, "as you wish", retriable=True)
        raise ZeroDivisionError("oops")

    @entry
    async def exports(self, ctx: RunContext, *, final: bool = False) -> None:
        """Export items of several kinds."""
        first = await ctx.run.export_text("text", "a description", mime="text/plain")
        await ctx.run.export_url("https://example.org")
        await ctx.run.export_binary_url("blob:1")
        await ctx.run.export_json({"a": 1}, metadata={"m": 1})
        if final:
            ctx.run.result(first)

    @entry
    async def slow_exports(self, ctx: RunContext, n: int) -> None:
        """Export one item after the other."""
        for number in range(n):
            await ctx.run.export_text(f"item {number}")
            await trio.sleep(1)

    @entry
    async def stages(self, ctx: RunContext) -> None:
        """Name a stage, then report progress."""
        ctx.run.status("loading", "the first part")
        await trio.sleep(1)
        ctx.run.progress(0.4, "x")
        await trio.sleep(1)

    @entry
    async def steps(self, ctx: RunContext, n: int = 3) -> list[int]:
        """Do durable steps, with exports between."""
        values = []
        for number in range(n):

            async def body(number: int = number) -> int:
                CALLS.append(f"step {number}")
                return number * number

            values.append(await ctx.run.step(f"step-{number}", body))
            await ctx.run.export_text(f"did {number}")
            ctx.run.progress((number + 1) / n)
        return values

    @entry(timeout=100)
    async def nap(self, ctx: RunContext, seconds: float) -> str:
        """Sleep, durably."""
        await ctx.run.sleep(seconds)
        return "rested"

    @entry
    async def steps_and_sleep(self, ctx: RunContext) -> None:
        """Sleep long while another task does a step, then sleep once more."""

        async def other() -> None:
            await ctx.run.step("work", trio.sleep, 10)
            await ctx.run.sleep(3600)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await ctx.run.sleep(3600)

    @entry
    async def question(self, ctx: RunContext) -> Any:
        """Ask, and return the answer."""
        return await ctx.run.ask({"text": "which?"})

    @entry
    async def questions(self, ctx: RunContext, n: int) -> None:
        """Ask several things at once."""
        async with trio.open_nursery() as nursery:
            for number in range(n):
                nursery.start_soon(ctx.run.ask, number, f"ask-{number}")
                await ctx.run.step(f"step-{number}", trio.sleep, 0)

    @entry
    async def flaky(self, ctx: RunContext, good_after: int) -> str:
        """Fail some tries of a step."""

        async def body() -> str:
            CALLS.append("try")
            if len(CALLS) <= good_after:
                raise OSError("not yet")
            return "good"

        return await ctx.run.step("flaky", body, retry=Retry(tries=5, delay=10))

    @entry
    async def parent(self, ctx: RunContext, children: int = 1) -> str:
        """Start children and wait."""
        started = [await ctx.run.start("test", "nap", {"seconds": 50}) for _ in range(children)]
        await ctx.run.sleep(60)
        return started[0]

    @entry
    async def brood(self, ctx: RunContext) -> None:
        """Start a dozen children, and leave them alone."""
        for _ in range(12):
            await ctx.run.start("test", "greet")

    @entry
    async def polite(self, ctx: RunContext) -> None:
        """Look for a cancel request, and say so in a group."""
        while True:
            await trio.sleep(0.1)
            try:
                ctx.run.check_cancelled()
            except RunCancelled as error:
                raise ExceptionGroup("wrapped", [error]) from None

    @entry
    async def deaf(self, ctx: RunContext, *, shielded: bool = False) -> None:
        """Never look for a cancel request; maybe not even for an interrupt."""
        with trio.CancelScope(shield=shielded):
            await trio.sleep(1000)

    @entry
    async def climb(self, ctx: RunContext, seconds: int) -> None:
        """Report progress every second, from the beginning whenever it is called."""
        for second in range(seconds):
            ctx.run.progress(second / seconds)
            await trio.sleep(1)

    @entry
    async def one_step(self, ctx: RunContext, seconds: float) -> None:
        """Do one long step, and say nothing meanwhile."""
        await ctx.run.step("long", trio.sleep, seconds)

    @entry
    async def guarded(self, ctx: RunContext) -> Any:
        """Do a step that nothing interrupts, then ask."""
        with trio.CancelScope(shield=True):
            await ctx.run.step("guarded", trio.sleep, 10)
        return await ctx.run.ask({"text": "which?"})

    @entry
    async def watchful(self, ctx: RunContext) -> None:
        """Do a step, and note what goes wrong."""
        try:
            await ctx.run.step("watched", trio.sleep, 1)
        except Exception as error:
            CALLS.append(repr(error))
            raise

    @entry(resumes=False)
    async def fragile(self, ctx: RunContext) -> None:
        """Cannot be called twice."""
        await trio.sleep(1000)

    @entry
    async def called(self, ctx: RunContext) -> None:
        """Note that it was called."""
        CALLS.append(ctx.run.id)

    @entry
    async def spam(self, ctx: RunContext, n: int, export_every: int = 0) -> None:
        """Report as fast as possible, and put something out now and then."""
        for number in range(n):
            ctx.run.progress(number / n, f"{number}")
            ctx.run.log(f"line {number}")
            if export_every and not number % export_every:
                await ctx.run.export_text(f"item {number}")
            await trio.sleep(0.001)

    @entry
    async def pour(self, ctx: RunContext, items: int, size: int, text: str = "x") -> None:
        """Put out so many texts of so many characters."""
        for _ in range(items):
            await ctx.run.export_text(text * size)


@plugin("other", version="1")
class Other:
    """Another plugin, with entries of the same names."""

    @entry
    async def greet(self, ctx: RunContext, name: str = "you") -> str:
        """Return a value."""
        return f"good evening {name}"

    @entry(timeout=100)
    async def nap(self, ctx: RunContext, seconds: float) -> None:
        """Sleep, durably."""
        await ctx.run.sleep(seconds)


class World:
    """An executor over a store, and the ways to use it."""

    def __init__(self, executor: Executor, store: MemoryStore) -> None:
        """Wrap a running executor."""
        self.executor = executor
        self.store = store

    async def create(self, entry_id: str, limit: float | None = None, **args: Any) -> str:
        """Create a run and dispatch it."""
        env = self.executor.context.env
        run_id = str(env.new_id())
        known = self.executor.context.entries.plugins["test"].entries.get(entry_id)
        created = RunCreated(
            run_id=run_id,
            plugin_id="test",
            entry_id=entry_id,
            args=args,
            tenant="local",
            principal="local",
            root_run_id=run_id,
            attempt=1,
            timeout=limit or (known.timeout if known else None),
            at=env.now(),
        )
        await self.executor.context.log.append(Append([first_write(env, created)]), new_work=True)
        self.executor.dispatch(run_id, "test")
        return run_id

    async def state(self, run_id: str) -> Run:
        """Look at a run."""
        return (await self.executor.runs.look(stream_of(run_id))).state

    async def end(self, run_id: str) -> Run:
        """Wait for the end of a run."""
        with trio.fail_after(10_000):
            return (await self.executor.end_of(run_id)).state

    def events(self, run_id: str, kind: type) -> list[Any]:
        """The events of a kind in the log of a run."""
        records = self.store.read_stream(stream_of(run_id), 0, Bounds()).records
        decoded = [RUN_EVENTS.decode(record) for record in records]
        return [event for event in decoded if isinstance(event, kind)]

    def created_at(self, run_id: str) -> int:
        """The position at which a run was created."""
        return self.store.read_stream(stream_of(run_id), 0, Bounds()).records[0].position

    async def open_runs(self, after: int) -> list[Listed]:
        """The runs that have not ended, as a directory would list them."""
        return [
            Listed(record.stream.removeprefix("run/"), record.position)
            for record in self.store._records
            if record.name == RunCreated.event_name
            and record.position > after
            and not self.store.stream_state(record.stream).sealed
        ]


@asynccontextmanager
async def world(store: MemoryStore | None = None, **limits: Any) -> AsyncIterator[World]:
    """Run a host; leaving the block ends it as a crash would."""
    store = store or MemoryStore()
    env = SteadyEnv()
    env.delay = 0.001
    async with open_log(env, store) as log, trio.open_nursery() as nursery:
        plugins = {"test": declared(Example)}
        executor = Executor(host_context(log, plugins, limits=HostLimits(**limits)))
        await nursery.start(executor.run)
        w = World(executor, store)
        await drop_old_seals(executor)
        await recover(executor, w.open_runs, await log.head())
        yield w
        nursery.cancel_scope.cancel()
