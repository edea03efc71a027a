"""What one plugin, tenant, ask or file does is not felt by others."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.commands import Deliver, RequestCancel
from perdure.actors.run.events import ExportAppended, RunCreated
from perdure.actors.run.status import CancelMode, Status
from perdure.eventlog import MemoryStore
from perdure.runtime.kernel.principal import LOCAL, Principal
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.runs.requests import CancelRun, CreateRun
from tests.runtime.execution.test_current_run import PLUGINS, Scripted, ran
from tests.runtime.runs.index_rows import rows_in
from tests.runtime.runs.test_index import ALL, ids, run_index
from tests.runtime.service import service
from tests.runtime.world import Example, world


async def test_plugins_take_turns(autojump_clock: MockClock) -> None:
    """One with a long line does not keep the others out."""
    one = replace(declared(Example), limit=None)
    both = {"test": one, "other": replace(one, id="other")}
    async with service(None, both, runs=2) as s:
        for _ in range(20):
            await s.start("nap", args={"seconds": 10})
        request = CreateRun(plugin_id="other", entry_id="greet", args={})
        late = (await s.create(LOCAL, request))["run"]["run_id"]
        await s.finished(late)
        assert trio.current_time() < 25


@pytest.mark.parametrize("bad_first", [True, False])
async def test_one_bad_ask_does_not_hurt_those_beside_it(
    autojump_clock: MockClock, bad_first: bool
) -> None:
    """A delivery that is too large is refused; a cancel that waited with it is done."""
    async with world() as w:
        run_id = await w.create("polite")
        await trio.sleep(1)
        text = "x" * 2_000_000
        item = ExportAppended(number=1, type="text", text=text, fingerprint="f", occurrence=1, at=1)
        answers: list[Any] = []

        async def ask(command: Any) -> None:
            try:
                answers.append(await w.executor.ask(run_id, command))
            except Exception as error:  # noqa: BLE001 - the error is the answer
                answers.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, RequestCancel(by="a", at=1))
            await trio.testing.wait_all_tasks_blocked()
            bad = Deliver(epoch=1, outputs=(item,), at=1)
            good = RequestCancel(by="b", at=2, mode=CancelMode.INTERRUPT)
            for command in (bad, good) if bad_first else (good, bad):
                nursery.start_soon(ask, command)
                await trio.testing.wait_all_tasks_blocked()
        assert sum(isinstance(answer, Exception) for answer in answers) == 1
        assert (await w.end(run_id)).status is Status.CANCELED


async def test_tenants_never_share_a_key(autojump_clock: MockClock) -> None:
    """Whatever their names are."""
    async with service() as s:
        request = CreateRun(plugin_id="test", entry_id="greet", args={}, idempotency_key="k")
        one = await s.create(Principal("a", "b/c"), request)
        other = await s.create(Principal("a/b", "c"), request)
        assert one["run"]["run_id"] != other["run"]["run_id"]


async def test_a_directory_that_is_damaged_inside_is_built_anew(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not only one whose first page is wrong."""
    store, path = MemoryStore(), tmp_path / "runs.db"
    async with world(store) as w, run_index(w, path) as runs:
        made = [await w.create("greet") for _ in range(200)]
        for run_id in made:
            await w.end(run_id)
        await ids(runs)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.execute("PRAGMA journal_mode = DELETE")
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    async with world(store) as w, run_index(w, path) as runs:
        found = await runs.list(ALL, limit=500)
        assert len(found[0]) == 200
    assert len(rows_in(path)) > 200


async def test_nothing_is_kept_of_what_is_done(autojump_clock: MockClock) -> None:
    """Neither for each flush of a chatty run nor for each run that was taken up."""

    async def chatty(ctx: RunContext) -> int:
        for number in range(50):
            ctx.run.log(f"{number}")
            await trio.sleep(1)
        port: Any = ctx.run._port
        return len(port._execution._helpers)

    end = await ran(chatty)
    assert end.items[0]["json"] <= 1
    store = MemoryStore()
    async with world(store) as w:
        for _ in range(20):
            await w.create("nap", seconds=50)
        await trio.sleep(1)
    async with world(store) as w:
        for record in list(store._records):
            if record.name == RunCreated.event_name:
                await w.end(record.stream.removeprefix("run/"))
        assert w.executor._histories == {}


@pytest.mark.parametrize("wait", ["ask", "sleep", "step and ask"])
async def test_runs_that_only_wait_keep_no_other_from_starting(
    autojump_clock: MockClock, wait: str
) -> None:
    """Until ten times as many are alive as may work at once; who works besides counts."""

    async def body(ctx: RunContext) -> None:
        async with trio.open_nursery() as nursery:
            if wait == "step and ask":
                nursery.start_soon(ctx.run.step, "work", trio.sleep, 1000)
            await (ctx.run.sleep(1000) if wait == "sleep" else ctx.run.ask("which?"))

    Scripted.body = staticmethod(body)
    async with service(None, PLUGINS, runs=2) as s:
        waiting = [(await s.start("go"))["run_id"] for _ in range(25)]
        await trio.sleep(1)
        running = [(await s.read(run_id))["status"] for run_id in waiting].count("running")
        assert running == (2 if wait == "step and ask" else 20)
        for run_id in waiting:
            await s.cancel(LOCAL, CancelRun(run_id=run_id, force=True))
        quick = (await s.start("take"))["run_id"]
        assert (await s.finished(quick))["status"] == "succeeded"
