"""Workers that are kept warm: one that has died meanwhile costs no run its life."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from perdure.runtime.process import pool
from perdure.runtime.process.pool import Pool
from perdure.runtime.process.worker import Worker, start_worker
from perdure.runtime.runs.part import runs_of
from tests.runtime.process.test_hostile import error_of, hostile
from tests.runtime.process.test_processes import result, run, start
from tests.runtime.service import Service


def pool_of(s: Service) -> Pool:
    """The processes of a node."""
    pool = runs_of(s.node).executor.processes
    assert isinstance(pool, Pool)
    return pool


def kept(s: Service) -> list[Worker]:
    """The workers that wait for the next run."""
    return [worker for kind in pool_of(s)._kept.values() for _, worker in kind]


async def warm(s: Service) -> Worker:
    """Run an entry; give the worker that waits for the next."""
    await run(s, "fine")
    (worker,) = kept(s)
    return worker


async def stop(worker: Worker) -> None:
    """Have a worker be alive, and deaf."""
    worker.signal(signal.SIGSTOP)
    await worker.is_alone()  # its guard does one thing after the other


async def handed_out(s: Service) -> None:
    """Wait until no worker waits any more."""
    while kept(s):  # noqa: ASYNC110 - nobody tells
        await trio.sleep(0.001)


async def test_a_worker_that_died_while_it_waited_is_not_handed_out() -> None:
    """The next run has another, and nothing of the dead one is left."""
    async with hostile() as s:
        worker = await warm(s)
        worker.signal(signal.SIGKILL)
        await worker.wait()
        assert (await run(s, "fine"))["error"] is None
        assert kept(s) != [worker]
        assert worker._control.fileno() == -1  # it is closed


async def test_a_worker_that_dies_before_it_begins_is_replaced() -> None:
    """It was alive when it was handed out; nothing of the run had begun there."""
    async with hostile() as s:
        worker = await warm(s)
        first = await result(s, await run(s, "fine"))
        await stop(worker)
        run_id = await start(s, "fine")
        await handed_out(s)
        worker.signal(signal.SIGKILL)
        end = await s.finished(run_id)
        assert end["error"] is None
        assert await result(s, end) != first
        assert worker._control.fileno() == -1  # it is closed


@pytest.mark.parametrize("entry_id", ["dies_once", "dies_once_awaited"])
async def test_a_worker_that_has_begun_is_not_replaced(tmp_path: Path, entry_id: str) -> None:
    """An entry that died without a word may have done anything: it is not called again."""
    note = tmp_path / "note"
    async with hostile(writes=tmp_path) as s:
        await warm(s)
        error = await error_of(s, entry_id, note=str(note))
        assert error["code"] == "PLUGIN_CRASHED"
        assert note.read_text("utf-8") == "called\n"


async def test_a_worker_is_replaced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the new one dies as well, the run has crashed."""
    started = []

    async def counted(*args: Any) -> Worker:
        started.append(await start_worker(*args))
        return started[-1]

    async with hostile() as s:
        worker = await warm(s)
        await stop(worker)
        monkeypatch.setattr(pool, "start_worker", counted)
        monkeypatch.setattr(pool, "CHILD", "no.such.module")
        run_id = await start(s, "fine")
        await handed_out(s)
        worker.signal(signal.SIGKILL)
        end = await s.finished(run_id)
        assert end["error"] is not None
        assert (end["error"]["code"], end["error"]["retriable"]) == ("PLUGIN_CRASHED", True)
        assert len(started) == 1
