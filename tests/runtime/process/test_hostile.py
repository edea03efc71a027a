"""Processes that misbehave hurt themselves and nobody else."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from perdure.actors.run import log_lines
from perdure.actors.run.events import (
    CancelEscalated,
    CancelRequested,
    Deactivated,
    LogBatch,
    RunEnded,
)
from perdure.runtime.execution.watchdog import Watchdog
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.manifest import read_manifest
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.process import sandbox_features
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import CancelRun
from tests.runtime.process.hostile_plugin import Hostile
from tests.runtime.process.test_processes import (
    lines,
    result,
    run,
    start,
    until_stage,
    writing,
)
from tests.runtime.service import Service, real_service


@asynccontextmanager
async def hostile(writes: Path | None = None, **limits: Any) -> AsyncIterator[Service]:
    """Run a node with the hostile plugin."""
    plugin = declared(Hostile) if writes is None else writing(declared(Hostile), writes)
    async with real_service({"hostile": plugin}, **limits) as s:
        s.plugin_id = "hostile"
        with trio.fail_after(60):
            yield s


def processes(mark: str) -> list[str]:
    """The processes of this interpreter whose command line holds a mark."""
    found = subprocess.run(
        ["ps", "-eww", "-o", "pid,args"], capture_output=True, text=True, check=True
    )
    return [line for line in found.stdout.splitlines() if mark in line and sys.executable in line]


async def left(mark: str) -> list[str]:
    """The processes that are still there when all had time to end."""
    with trio.move_on_after(10):
        while processes(mark):  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.05)
    return processes(mark)


async def error_of(s: Service, entry_id: str, **args: Any) -> dict[str, Any]:
    """Run an entry that fails; give its error."""
    end = await run(s, entry_id, **args)
    assert end["status"] == "failed"
    assert end["error"] is not None
    return dict(end["error"])


async def test_a_process_that_dies_fails_its_run_within_a_second() -> None:
    """Killed or gone without a word, retriable, and the next run is fine (R110, R111)."""
    async with hostile() as s:
        await run(s, "fine")
        begun = trio.current_time()
        error = await error_of(s, "die")
        assert trio.current_time() - begun < 1
        assert (error["code"], error["retriable"]) == ("PLUGIN_CRASHED", True)
        assert "signal 9" in error["message"]
        assert "signal 11" in (await error_of(s, "die", sig=11))["message"]
        gone = await error_of(s, "leave", status=3)
        assert (gone["code"], gone["details"]) == ("PLUGIN_CRASHED", {"status": 3})
        assert (await run(s, "fine"))["status"] == "succeeded"


@pytest.mark.parametrize(
    "line",
    [
        "rubbish",
        "[1, 2]",
        '{"say": "fly"}',
        '{"say": "did", "id": 99}',
        "[" * 100_000,
    ],
)
async def test_a_malformed_message_ends_its_run_and_nothing_else(line: str) -> None:
    """With an error that says what was wrong."""
    async with hostile(cancel_grace=0.2) as s:
        beside = await start(s, "stubborn")
        error = await error_of(s, "rubbish", line=line)
        assert error["code"] == "PLUGIN_PROTOCOL_ERROR"
        assert error["message"]
        assert (await s.read(beside))["status"] == "running"


async def test_a_message_of_a_process_has_so_many_values() -> None:
    """Each is looked at by the server, which has others to serve."""
    async with hostile(cancel_grace=0.2) as s:
        error = await error_of(s, "many_values", count=300_000)
        assert error["code"] == "PLUGIN_PROTOCOL_ERROR"
        assert "20,000 values" in error["message"]
        assert (await run(s, "many_values", count=19_000))["status"] == "succeeded"


async def test_a_message_for_another_run_is_refused() -> None:
    """A process speaks for its own run only (R107)."""
    async with hostile(cancel_grace=0.2) as s:
        victim = await start(s, "stubborn")
        await until_stage(s, victim, "deaf")
        before = await s.read(victim)
        line = json.dumps({"say": "progress", "progress": 0.5, "run_id": victim})
        error = await error_of(s, "rubbish", line=line)
        assert error["code"] == "PLUGIN_PROTOCOL_ERROR"
        assert victim in error["message"]
        assert await s.read(victim) == before


async def test_a_line_without_an_end_is_not_held_in_memory() -> None:
    """More than a message may have is the end."""
    async with hostile(cancel_grace=0.2) as s:
        error = await error_of(s, "endless_line")
        assert error["code"] == "PLUGIN_PROTOCOL_ERROR"


async def test_a_flood_is_thinned_and_delays_nobody() -> None:
    """Printed lines beyond a bound are counted and dropped; others are answered meanwhile."""
    async with hostile() as s:
        flooding = await start(s, "flood")
        for _ in range(5):
            with trio.fail_after(5):
                await run(s, "fine")
        end = await s.finished(flooding)
        assert end["status"] == "succeeded"
        batches: list[LogBatch] = s.world.events(flooding, LogBatch)
        kept = sum(len(batch.lines) for batch in batches)
        assert kept + sum(batch.dropped for batch in batches) == 200_000
        assert kept < 50_000
        assert len(s.world.store._records) < 1000


async def test_a_flood_without_end_ends_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else; the log stays small."""
    monkeypatch.setattr(log_lines, "FLOOD", 1 << 20)
    async with hostile() as s:
        flooding = await start(s, "floods")
        await run(s, "fine")
        end = await s.finished(flooding)
        assert end["error"] is not None
        assert (end["status"], end["error"]["code"]) == ("failed", "OUTPUT_FLOOD")
        batches: list[LogBatch] = s.world.events(flooding, LogBatch)
        assert (
            sum(len(line.text) for batch in batches for line in batch.lines) < 2 * log_lines.BURST
        )
    assert await left("hostile_plugin:Hostile") == []


async def test_a_stubborn_process_is_killed_with_all_it_has_started() -> None:
    """Asked, interrupted, killed: each an event with a deadline; nothing is left (R77, R106)."""
    async with hostile(cancel_grace=0.3) as s:
        run_id = await start(s, "stubborn")
        await until_stage(s, run_id, "deaf")
        assert len(processes(f"#{run_id}")) >= 2
        begun = trio.current_time()
        await s.cancel(LOCAL, CancelRun(run_id=run_id))
        end = await s.finished(run_id)
        assert end["status"] == "canceled"
        assert trio.current_time() - begun < 2
        steps = s.world.events(run_id, CancelRequested) + s.world.events(run_id, CancelEscalated)
        assert [step.mode.name for step in steps] == ["COOPERATIVE", "INTERRUPT", "FORCE"]
        assert [step.deadline - step.at for step in steps] == [300_000_000] * 2 + [100_000_000]
        for step, harder in pairwise(steps):
            assert step.deadline <= harder.at
        await trio.sleep(0.3)
        assert processes(f"#{run_id}") == []
        assert (await run(s, "fine"))["status"] == "succeeded"


async def test_a_process_that_takes_too_much_memory_ends_alone() -> None:
    """Where it may take only so much."""
    async with hostile() as s:
        error = await error_of(s, "eats_memory")
        assert error["code"] in {"PLUGIN_ERROR", "PLUGIN_CRASHED"}
        assert (await run(s, "fine"))["status"] == "succeeded"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel of Linux does that")
async def test_when_memory_runs_out_a_process_ends_before_the_server() -> None:
    """Also one that may take as much as there is."""
    async with hostile() as s:
        assert await result(s, await run(s, "badness")) == 1000


async def test_a_fork_ends_with_its_run_or_its_worker() -> None:
    """It is no process of its own to us."""
    async with hostile() as s:
        assert await result(s, await run(s, "forks")) == "parent"
    assert await left("hostile_plugin:Hostile") == []


async def test_references_groups_and_silence_are_as_inline() -> None:
    """A foreign reference is refused, a wrapped cancel counts, no progress is null.

    R101, R103, R104, R105.
    """
    async with hostile() as s:
        end = await run(s, "behaves")
        assert (end["status"], end["progress"], end["result_refs"]) == ("succeeded", None, [])
        assert (await error_of(s, "behaves", ref="nobody.1"))["code"] == "VALIDATION_ERROR"
        run_id = await start(s, "obeys_in_a_group")
        await until_stage(s, run_id, "waiting")
        await s.cancel(LOCAL, CancelRun(run_id=run_id))
        assert (await s.finished(run_id))["status"] == "canceled"


async def test_a_stubborn_process_that_breaks_the_rules_gets_one_grace() -> None:
    """It is killed then, although nobody has canceled its run."""
    async with hostile(cancel_grace=0.2) as s:
        with trio.fail_after(10):  # it would go on for 30 seconds
            error = await error_of(s, "rubbish", stubborn=True)
        assert error["code"] == "PLUGIN_PROTOCOL_ERROR"


async def test_a_drain_gives_a_stubborn_process_one_grace() -> None:
    """It is killed then, and its run is let go of for the next server."""
    async with hostile(cancel_grace=0.2) as s:
        run_id = await start(s, "stubborn")
        await until_stage(s, run_id, "deaf")
        runs_of(s.node).executor.drain()
        await runs_of(s.node).executor.settled()
        assert await left(f"#{run_id}") == []
        assert len(s.world.events(run_id, Deactivated)) == 1
        assert s.world.events(run_id, RunEnded) == []


async def test_a_server_that_falls_over_waits_for_no_process() -> None:
    """However long the grace: what it leaves behind is gone."""
    async with hostile(cancel_grace=1000.0) as s:
        run_id = await start(s, "stubborn")
        await until_stage(s, run_id, "deaf")
    assert await left(f"#{run_id}") == []


async def test_a_timeout_stops_the_process() -> None:
    """It is gone, not only marked (R7)."""
    async with hostile(cancel_grace=0.2) as s:
        end = await run(s, "late")
        assert end["status"] == "timeout"
        assert end["error"] is not None
        assert end["error"]["code"] == "TIMEOUT"
        assert lines(s, end["run_id"]) == [("info", "printed")]
        assert await left("hostile_plugin:Hostile") == []


async def test_workers_are_warm_but_never_shared() -> None:
    """The next run of the same tenant finds the process; after a crash it is a new one."""
    async with hostile() as s:
        first = await result(s, await run(s, "fine"))
        assert await result(s, await run(s, "fine")) == first
        await error_of(s, "die")
        assert await result(s, await run(s, "fine")) != first


@pytest.mark.parametrize("entry_id", ["goes_on", "hard_of_hearing", "talks_on"])
async def test_a_process_that_is_not_done_gets_no_other_run(entry_id: str) -> None:
    """What it still says would be taken for that of the next one."""
    async with hostile(cancel_grace=0.2) as s:
        first = await result(s, await run(s, "fine"))
        await run(s, entry_id)
        second = await result(s, await run(s, "fine"))
        assert isinstance(second, int)
        assert second != first


async def test_when_the_node_ends_its_processes_do() -> None:
    """Warm ones and busy ones."""
    async with hostile() as s:
        await run(s, "fine")
        run_id = await start(s, "stubborn")
        await until_stage(s, run_id, "deaf")
    assert processes(f"#{run_id}") == []
    assert await left("hostile_plugin:Hostile") == []


async def test_a_thread_works_and_cannot_be_stopped() -> None:
    """When its run ends without it, whatever it says later is refused."""
    async with hostile(cancel_grace=0.1) as s:
        end = await run(s, "thread")
        assert (end["status"], end["progress"]) == ("succeeded", 0.25)
        assert await result(s, end) == "stepped"
        run_id = await start(s, "thread", seconds=1.0)
        await until_stage(s, run_id, "asleep")
        await s.cancel(LOCAL, CancelRun(run_id=run_id))
        ended = await s.finished(run_id)
        assert ended["status"] == "canceled"
        await trio.sleep(1.5)
        assert await s.read(run_id) == ended
        assert len(s.world.events(run_id, RunEnded)) == 1


async def test_a_program_that_does_not_exist_fails_its_run(tmp_path: Any) -> None:
    """With a code and the name of the program."""
    (tmp_path / "plugin.toml").write_text(
        'id = "gone"\nversion = "1"\n[entries.go]\ncommand = ["no-such-program"]\n'
    )
    async with real_service({"gone": read_manifest(tmp_path)}) as s:
        s.plugin_id = "gone"
        error = await error_of(s, "go")
        assert error["code"] == "PLUGIN_NOT_STARTED"
        assert error["message"].startswith("no-such-program cannot be started: there is no such")
        assert error["retriable"] is False  # it will not be there the next time either


async def test_an_entry_that_blocks_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """After a second, once, with its run."""
    async with hostile() as s:
        runs_of(s.node).executor.start(Watchdog(s.node.env).run)
        with caplog.at_level(logging.WARNING):
            end = await run(s, "blocks")
        assert end["status"] == "succeeded"
        told = [record.getMessage() for record in caplog.records if "blocks" in record.getMessage()]
        assert len(told) == 1
        assert "hostile.blocks" in told[0]
        assert end["run_id"] in told[0]


@pytest.mark.parametrize("no_namespace", [False, True])
async def test_a_process_that_is_asked_to_end_may_clean_up(
    monkeypatch: pytest.MonkeyPatch, no_namespace: bool
) -> None:
    """Between the signal that asks and the one that kills it has a grace."""
    if no_namespace:
        monkeypatch.setattr(sandbox_features, "features", sandbox_features.SandboxFeatures)
    async with hostile(cancel_grace=1.0) as s:
        run_id = await start(s, "cleans_up")
        await until_stage(s, run_id, "deaf")
        await s.cancel(LOCAL, CancelRun(run_id=run_id))
        assert (await s.finished(run_id))["status"] == "canceled"
        assert lines(s, run_id) == [("info", "cleaned")]


@pytest.mark.parametrize(
    ("victim", "entry_id"), [("server", "stubborn"), ("guard", "stubborn"), ("server", "alone")]
)
def test_nothing_outlives_a_server_that_is_killed(
    tmp_path: Any, victim: str, entry_id: str
) -> None:
    """Not the process, not what it has started, not what has left its group."""
    program, log = "tests.runtime.process.hostile_server", str(tmp_path / "log.db")
    child = subprocess.Popen(
        [sys.executable, "-m", program, log, entry_id],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    run_id = child.stdout.readline().strip()
    assert run_id, "it ended before it said what it executes"
    while len(processes(f"#{run_id}")) < 2:
        assert child.poll() is None
        subprocess.run(["sleep", "0.05"], check=True)
    if victim == "server":
        os.kill(child.pid, signal.SIGKILL)
    else:
        (guard, *_) = [line.split()[0] for line in processes("perdure-guard") if "hostile" in line]
        os.kill(int(guard), signal.SIGKILL)
    for _ in range(100):
        if not processes(f"#{run_id}"):
            break
        subprocess.run(["sleep", "0.05"], check=True)
    assert processes(f"#{run_id}") == []
    child.kill()
    child.wait()
    child.stdout.close()
