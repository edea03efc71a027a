"""Steps that are tried again: after which errors, when, and how that can be seen."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from perdure import PluginError, Retry, RunContext
from perdure.actors.run.core import RETRYING
from perdure.actors.run.events import LogBatch, StageChanged, StepFailed
from perdure.eventlog import MemoryStore
from perdure.eventlog.units import NANOSECONDS
from tests.runtime.execution.test_current_run import PLUGINS, Scripted, ran
from tests.runtime.execution.test_run_calls import EVERYWHERE, told
from tests.runtime.service import service

FAILED = ["FailedStep", "PLUGIN_ERROR: ValueError: no"]


@EVERYWHERE
async def test_a_step_is_tried_again_only_where_that_may_help(place: str) -> None:
    """After any error but one that is not retriable, or that the rule leaves out."""
    mine = ["FailedStep", "MINE: no"]
    assert await told(place, "tries") == {
        "plain": [3, *FAILED],
        "retriable": [3, *mine],
        "not retriable": [1, *mine],
        "another": [1, *FAILED],
        "such": [3, "FailedStep", "PLUGIN_ERROR: TimeoutError: no"],
        "in a group": [3, "FailedStep", "PLUGIN_ERROR: OSError: no"],
        "not in a group": [1, *FAILED],
    }


@EVERYWHERE
async def test_a_step_takes_functions_of_its_place(place: str) -> None:
    """Another kind is refused, with what to write instead; it is not tried again."""
    kind, message = await told(place, "takes_the_other_kind")
    assert kind == "StepError"
    if place in {"plain", "threaded"}:
        assert "step 's' got an async function, and this entry is a plain one" in message
        assert "make the step a plain function" in message
    else:
        assert "step 's' got a plain function, and this entry is async" in message
        assert "trio.to_thread.run_sync" in message


@pytest.mark.parametrize("place", ["inline", "awaited", "fake"])
async def test_a_try_that_takes_too_long_is_stopped(place: str) -> None:
    """And has failed; whatever the rule is about, another may be faster."""
    assert await told(place, "takes_too_long") == [
        *(2, "FailedStep", "STEP_TIMEOUT: a try of step 's' took longer than its 0.05 seconds"),
        *("FailedStep", "PLUGIN_ERROR: TimeoutError: mine"),
    ]


@pytest.mark.parametrize("place", ["plain", "threaded"])
async def test_what_cannot_be_stopped_has_no_time_limit(place: str) -> None:
    """A plain function is refused one at the call, with what to do instead."""
    calls, kind, message, *_ = await told(place, "takes_too_long")
    assert (calls, kind) == (0, "PluginError")
    assert message.startswith("VALIDATION_ERROR: a plain function cannot be stopped")
    assert "make the entry `async def`" in message


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "1"])
async def test_a_time_limit_is_a_time(autojump_clock: MockClock, seconds: float) -> None:
    """Anything else is refused at the call."""

    async def body(ctx: RunContext) -> None:
        await ctx.run.step("s", trio.sleep, 1, timeout=seconds)

    code, message = (await ran(body)).error
    assert code == "VALIDATION_ERROR"
    assert message.startswith("the time limit of a step is")


async def test_tries_can_be_seen(autojump_clock: MockClock) -> None:
    """While the next is waited for, in the log, and in the history; then the stage is over."""
    seen: list[tuple[str, str | None, str | None]] = []

    async def fails() -> str:
        if len(seen) < 2:
            raise OSError(f"not yet {len(seen)}")
        return "good"

    async def body(ctx: RunContext) -> str:
        ctx.run.status("loading")
        return await ctx.run.step("fetch", fails, retry=Retry(tries=4, delay=10))

    Scripted.body = staticmethod(body)
    async with service(None, PLUGINS) as s:
        run_id = (await s.start("go"))["run_id"]
        for wait in (5, 10, 20):
            await trio.sleep(wait)
            record = await s.read(run_id)
            seen.append((record["status"], record["stage"], record["message"]))
        assert seen == [
            ("running", RETRYING, "fetch: try 2 of 4 after OSError: not yet 0"),
            ("running", RETRYING, "fetch: try 3 of 4 after OSError: not yet 1"),
            ("succeeded", None, None),
        ]
        lines = [line for batch in s.world.events(run_id, LogBatch) for line in batch.lines]
        assert [(line.level, line.text.partition("\n")[0]) for line in lines] == [
            (
                "warning",
                "step 'fetch' failed and is tried again in 10 s, try 1 of 4: OSError: not yet 0",
            ),
            (
                "warning",
                "step 'fetch' failed and is tried again in 20 s, try 2 of 4: OSError: not yet 1",
            ),
        ]
        assert "in fails" in lines[0].text  # the traceback
        rows = (await s.call("runs.history", {"run_id": run_id}))["history"]
        tries = [row for row in rows if row["what"] == "step_failed"]
        assert [(row["step"], row["tries"], row["error"]["message"]) for row in tries] == [
            ("fetch", 1, "OSError: not yet 0"),
            ("fetch", 2, "OSError: not yet 1"),
        ]


async def test_the_last_try_is_in_the_log_of_an_entry_that_goes_on(
    autojump_clock: MockClock,
) -> None:
    """Also if it catches what the step raises; and the stage does not stay."""

    async def fails() -> None:
        raise PluginError("BUSY", "no", retriable=True)

    async def body(ctx: RunContext) -> None:
        with pytest.raises(PluginError):
            await ctx.run.step("s", fails, retry=Retry(tries=2))
        with pytest.raises(PluginError):
            await ctx.run.step("once", fails)

    end = await ran(body)
    texts = [line.text for batch in end.events(LogBatch) for line in batch.lines]
    assert texts == [
        "step 's' failed and is tried again in 1 s, try 1 of 2: BUSY: no",
        "step 's' failed for good, try 2 of 2: BUSY: no",
    ]
    assert (end.record["status"], end.record["stage"]) == ("succeeded", None)


async def test_tries_without_a_delay_are_not_shown_one_by_one(autojump_clock: MockClock) -> None:
    """The stage is thinned as those of entries are, and does not stay behind (R112)."""
    calls: list[int] = []

    async def fails() -> None:
        calls.append(1)
        if len(calls) < 500:
            raise OSError("not yet")

    async def body(ctx: RunContext) -> None:
        await ctx.run.step("s", fails, retry=Retry(tries=500, delay=0))
        await trio.sleep(10)

    end = await ran(body)
    assert 0 < len(end.events(StageChanged)) <= 50
    assert (end.record["status"], end.record["stage"]) == ("succeeded", None)


async def test_jitter_makes_delays_longer_by_chance_and_survives_a_crash(
    autojump_clock: MockClock,
) -> None:
    """Each by up to its part; when the next try is due is recorded."""

    async def fails() -> None:
        raise OSError("no")

    async def body(ctx: RunContext) -> None:
        rule = Retry(tries=20, delay=100, factor=1, jitter=0.5)
        await ctx.run.step("s", fails, retry=rule)

    store = MemoryStore()
    Scripted.body = staticmethod(body)
    async with service(store, PLUGINS) as s:
        run_id = (await s.start("go"))["run_id"]
        await trio.sleep(1000)
    async with service(store, PLUGINS) as s:
        await s.finished(run_id)
        failed = s.world.events(run_id, StepFailed)
    delays = [(each.retry_at - each.at) / NANOSECONDS for each in failed[:-1]]
    assert len(set(delays)) > 10
    assert all(100 <= delay <= 150 for delay in delays)
    assert all(after.at >= before.retry_at for before, after in pairwise(failed))
