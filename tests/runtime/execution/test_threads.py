"""Entries in threads: none waits for a second token, and a thread that was left behind ends."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from perdure.runtime.execution.threads import THREADS
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.contract import RunCancelled
from perdure.runtime.plugins.plugin import declared, entry, plugin
from perdure.runtime.plugins.run_context import SyncRunContext
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CancelRun
from tests.runtime.execution.test_current_run import items
from tests.runtime.process.test_processes import result, until_stage
from tests.runtime.service import Service, real_service

Body = Callable[[SyncRunContext], Any]


@plugin("test", version="1")
class Threaded:
    """Runs in a thread whatever the test has put here."""

    body: Body

    @entry(where="thread")
    def go(self, ctx: SyncRunContext) -> Any:
        """Do what the test says."""
        return type(self).body(ctx)


@asynccontextmanager
async def threaded(body: Body, **limits: Any) -> AsyncIterator[Service]:
    """Run a node whose entries in threads do what the test says."""
    Threaded.body = staticmethod(body)
    async with real_service({"test": declared(Threaded)}, **limits) as s:
        with trio.fail_after(20):
            yield s


def step(ctx: SyncRunContext) -> None:
    """Do a step."""
    ctx.run.step("s", lambda: None)


def nested_step(ctx: SyncRunContext) -> None:
    """Do a step within a step."""
    ctx.run.step("outer", lambda: ctx.run.step("inner", lambda: None))


def bytes_in_pieces(ctx: SyncRunContext) -> None:
    """Export bytes that are made while they are exported."""
    ctx.run.export_bytes(piece for piece in (b"a", b"b"))


def step_in_pieces(ctx: SyncRunContext) -> None:
    """Do a step for each piece of an export."""

    def pieces() -> Iterator[bytes]:
        for number in range(3):
            yield ctx.run.step(f"piece {number}", lambda: b"x" * 50_000)

    ctx.run.export_bytes(pieces())


def everything_else(ctx: SyncRunContext) -> None:
    """Export a text, and sleep."""
    ctx.run.export_text("t")
    ctx.run.sleep(0.01)


@pytest.mark.parametrize(
    "call", [step, nested_step, bytes_in_pieces, step_in_pieces, everything_else]
)
async def test_all_threads_at_once_get_what_they_ask_of_their_runs(call: Body) -> None:
    """An entry has one token to the end; nothing it calls needs another, and a backlog moves."""
    begun = threading.Barrier(THREADS)

    def body(ctx: SyncRunContext) -> None:
        begun.wait(10)  # every token is taken, and as many runs wait for one
        call(ctx)

    async with threaded(body) as s:
        runs = [(await s.start("go"))["run_id"] for _ in range(2 * THREADS)]
        ends = [await s.finished(run_id) for run_id in runs]
        assert [end["error"] for end in ends] == [None] * len(runs)
        assert runs_of(s.node).executor.threads.borrowed_tokens == 0


async def test_a_step_is_done_in_the_thread_of_its_entry() -> None:
    """So is each piece of an export: what belongs to one thread can be used in all of them."""

    def body(ctx: SyncRunContext) -> bool:
        here = threading.get_ident()
        there: list[int] = []

        def pieces() -> Iterator[bytes]:
            there.append(threading.get_ident())
            yield b"piece"

        there.append(ctx.run.step("s", threading.get_ident))
        ctx.run.export_bytes(pieces())
        return there == [here, here]

    async with threaded(body) as s:
        assert await result(s, await s.finished((await s.start("go"))["run_id"])) is True


def asks(ctx: SyncRunContext) -> None:
    """Wait for an answer."""
    ctx.run.ask("which?")


def sleeps(ctx: SyncRunContext) -> None:
    """Wait for a day."""
    ctx.run.sleep(86_400)


def asks_in_a_step(ctx: SyncRunContext) -> None:
    """Wait for an answer within a step."""
    ctx.run.step("s", lambda: ctx.run.ask("which?"))


@pytest.mark.parametrize("wait", [asks, sleeps, asks_in_a_step])
@pytest.mark.parametrize("how", ["timeout", "force", "drain"])
async def test_a_thread_that_waits_when_its_run_ends_is_woken(wait: Body, how: str) -> None:
    """With RunCancelled; it ends, and its token is there for the next run."""
    seen: list[BaseException] = []

    def body(ctx: SyncRunContext) -> None:
        ctx.run.status("waiting")
        try:
            wait(ctx)
        except BaseException as error:
            seen.append(error)
            raise

    async with threaded(body) as s:
        executor = runs_of(s.node).executor
        run_id = (await s.start("go", timeout=0.3 if how == "timeout" else None))["run_id"]
        await until_stage(s, run_id, "waiting" if wait is sleeps else "input_required")
        if how == "force":
            await s.cancel(LOCAL, CancelRun(run_id=run_id, force=True))
        if how == "drain":
            executor.drain()
            await executor.settled()
        else:
            ends = {"timeout": "timeout", "force": "canceled"}
            assert (await s.finished(run_id))["status"] == ends[how]
        for _ in range(THREADS):
            await executor.threads.acquire_on_behalf_of(object())
        assert [type(error) for error in seen] == [RunCancelled]


async def test_a_thread_that_works_when_its_run_ends_holds_its_token_until_it_ends() -> None:
    """Whether in a step or not: it cannot be stopped, so it counts."""
    goes_on, ended = threading.Event(), threading.Event()

    def body(ctx: SyncRunContext) -> None:
        ctx.run.status("waiting")
        try:
            ctx.run.step("s", goes_on.wait, 10)
        finally:
            ended.set()

    async with threaded(body) as s:
        run_id = (await s.start("go"))["run_id"]
        await until_stage(s, run_id, "waiting")
        await s.cancel(LOCAL, CancelRun(run_id=run_id, force=True))
        assert (await s.finished(run_id))["status"] == "canceled"
        assert runs_of(s.node).executor.threads.borrowed_tokens == 1
        goes_on.set()
        assert await trio.to_thread.run_sync(ended.wait, 10)
        for _ in range(THREADS):
            await runs_of(s.node).executor.threads.acquire_on_behalf_of(object())
        assert await items(s, run_id) == []
