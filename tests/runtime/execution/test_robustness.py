"""What an entry does badly, and what happens around it: nothing is lost, nobody else is hurt."""

from __future__ import annotations

from errno import ENOSPC
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.events import LogBatch
from perdure.actors.run.stream import stream_of
from perdure.eventlog import MemoryStore
from perdure.eventlog.store import Bounds
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.contract import FailedStep, PluginError, StepError
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.runs.requests import AnswerRun, CancelRun, ListRuns
from perdure.runtime.secrets.vault import Vault
from tests.runtime.execution.test_current_run import PLUGINS, Scripted, items, ran
from tests.runtime.service import next_frame, refused, service


def script(body: Any) -> None:
    """Say what the entry does."""
    Scripted.body = staticmethod(body)


# Outputs


async def test_several_tasks_may_wait_for_room(autojump_clock: MockClock) -> None:
    """All of them go on when there is some."""

    async def body(ctx: RunContext) -> None:
        async def export(task: int) -> None:
            for number in range(100):
                await ctx.run.export_text(f"{task}/{number}")

        async with trio.open_nursery() as nursery:
            for task in range(3):
                nursery.start_soon(export, task)

    end = await ran(body)
    assert end.record["status"] == "succeeded"
    assert len(end.items) == 300


@pytest.mark.parametrize("exports", [1, 40, 63, 64, 70, 130])
async def test_a_task_that_waits_for_room_gets_it_from_a_child_that_is_started(
    autojump_clock: MockClock, exports: int
) -> None:
    """Whoever takes what waits makes room."""

    async def body(ctx: RunContext) -> None:
        async def export() -> None:
            for number in range(exports):
                await ctx.run.export_text(f"{number}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(export)
            for _ in range(3):
                await ctx.run.start("test", "take")

    end = await ran(body)
    assert end.record["status"] == "succeeded"
    assert len(end.items) == exports


@pytest.mark.parametrize("why", ["too large", "no disk for its secret"])
async def test_a_child_that_cannot_be_started_takes_nothing_along(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """The entry hears of it, goes on, and what it has put out is there."""

    async def full(*_: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    async def body(ctx: RunContext) -> None:
        await ctx.run.export_text("before")
        monkeypatch.setattr(Vault, "seal", full)
        args = {"data": "x" * 2_000_000} if why == "too large" else {"token": "a secret"}
        with pytest.raises(PluginError) as told:
            await ctx.run.start("test", "take", args)
        await ctx.run.export_text(told.value.code)

    end = await ran(body)
    assert end.record["status"] == "succeeded"
    said = {"too large": "PAYLOAD_TOO_LARGE", "no disk for its secret": "UNAVAILABLE"}[why]
    assert [item["text"] for item in end.items] == ["before", said]


async def test_what_is_too_large_is_refused_at_the_call_and_nothing_else_is_lost(
    autojump_clock: MockClock,
) -> None:
    """A step's result, an export, a question; what came before is there."""

    async def big() -> str:
        return "x" * 2_000_000

    async def body(ctx: RunContext) -> None:
        await ctx.run.export_text("before")
        with pytest.raises(StepError, match="too many"):
            await ctx.run.step("big", big)
        with pytest.raises(PluginError, match="too many"):
            await ctx.run.export_url("x" * 2_000_000)
        with pytest.raises(StepError, match="too many"):
            await ctx.run.ask("x" * 2_000_000)
        await ctx.run.export_text("after")

    end = await ran(body)
    assert end.record["status"] == "succeeded"
    assert [item["text"] for item in end.items] == ["before", "after"]


async def test_many_large_values_leave_in_several_appends(autojump_clock: MockClock) -> None:
    """However much an entry exports, each append stays below its limits."""

    async def body(ctx: RunContext) -> None:
        for number in range(64):
            await ctx.run.export_json({"n": number, "x": "y" * 60_000})

    end = await ran(body)
    assert end.record["status"] == "succeeded"
    assert [item["json"]["n"] for item in end.items] == list(range(64))


async def test_odd_text_is_replaced_where_people_read_it(autojump_clock: MockClock) -> None:
    """A file name that no encoding knows costs nobody a run."""

    async def body(ctx: RunContext) -> None:
        await ctx.run.export_text("before")
        ctx.run.log("odd \udcff \0 name")
        ctx.run.progress(0.5, "at \udcff")
        ctx.run.status("s", "\udcff")
        await trio.sleep(1)
        raise ValueError("\udcff")

    end = await ran(body)
    assert end.error == ("PLUGIN_ERROR", "ValueError: ?")
    assert [item["text"] for item in end.items] == ["before"]
    said, failed = (line for batch in end.events(LogBatch) for line in batch.lines)
    assert said.text == "odd ? \ufffd name"
    assert failed.text.endswith("ValueError: ?")


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.log("x", level=3),
        lambda run: run.log(3),
        lambda run: run.status(5),
        lambda run: run.progress(0.5, 5),
        lambda run: run.export_text(123),
        lambda run: run.export_text("x", 5),
        lambda run: run.export_text("x", mime=5),
        lambda run: run.export_text("x", key=5),
        lambda run: run.export_text("x", metadata=5),
        lambda run: run.export_json({"a": object()}),
        lambda run: run.export_json(1, metadata={"a": object()}),
        lambda run: run.step(5, None),
        lambda run: run.sleep(1, name=5),
        lambda run: run.ask(object()),
        lambda run: run.start(5, "x"),
        lambda run: run.start("test", "nowhere"),
        lambda run: run.start("test", "go", {"unknown": 1}),
    ],
)
async def test_a_wrong_type_raises_at_the_call(autojump_clock: MockClock, call: Any) -> None:
    """Nothing is stored that could not be read again."""

    async def body(ctx: RunContext) -> None:
        await ctx.run.export_text("before")

        async def go() -> None:
            value = call(ctx.run)
            if value is not None:
                await value

        with pytest.raises((PluginError, StepError)):
            await go()
        await ctx.run.export_text("after")

    store = MemoryStore()
    end = await ran(body, store)
    assert end.record["status"] == "succeeded"
    async with service(store, PLUGINS) as s:  # read from the log alone
        assert await s.read(end.record["run_id"]) == end.record
        assert len(await items(s, end.record["run_id"])) == 2


async def test_an_error_of_any_shape_can_be_stored(autojump_clock: MockClock) -> None:
    """Codes that are no text, details that cannot be kept."""

    async def body(ctx: RunContext) -> None:
        raise PluginError(404, "x", details={"a": object()})  # type: ignore[arg-type]

    end = await ran(body)
    assert end.error == ("404", "x")


async def test_outputs_leave_within_a_tenth_of_a_second(autojump_clock: MockClock) -> None:
    """Also in a run of days, whose reports are seldom, and the last value of a burst (R42)."""
    seen: dict[str, float] = {}

    async def body(ctx: RunContext) -> None:
        for number in range(1, 6):
            ctx.run.progress(number / 10)
        seen["reported"] = trio.current_time()
        await trio.sleep(86_400)
        ctx.run.progress(0.9)
        await trio.sleep(0.4)
        ctx.run.progress(0.95)
        await trio.sleep(1)  # it waits for its window, which is more than a minute long
        await ctx.run.export_text("late")
        seen["exported"] = trio.current_time()
        await trio.sleep(1000)

    script(body)
    async with service(None, PLUGINS) as s:
        follow = await s.follow("runs", after=await s.cursor())
        run_id = (await s.start("go"))["run_id"]
        while (await s.read(run_id))["progress"] != 0.5:
            await next_frame(follow)
        assert trio.current_time() - seen["reported"] <= 0.1
        export = await s.follow("export", after=await s.cursor())
        while not (await next_frame(export))["events"]:
            pass
        assert trio.current_time() - seen["exported"] <= 0.1
        assert (await s.read(run_id))["progress"] == 0.9  # the item did not wait for the report


# Steps, questions, children


async def test_a_question_shows_whatever_was_said_before(autojump_clock: MockClock) -> None:
    """The stage is input_required while it waits, and not afterwards."""

    async def body(ctx: RunContext) -> None:
        ctx.run.status("a")
        await trio.sleep(0.2)
        ctx.run.status("b")
        await ctx.run.ask("which?")
        await trio.sleep(10)

    script(body)
    async with service(None, PLUGINS) as s:
        run_id = (await s.start("go"))["run_id"]
        await trio.sleep(5)
        shown = await s.read(run_id)
        assert (shown["stage"], len(shown["questions"])) == ("input_required", 1)
        assert shown["message"] == "which?"
        question = shown["questions"][0]
        answer = AnswerRun(run_id=run_id, question_id=question, answer=1)
        await s.answer(LOCAL, answer)
        after = await s.read(run_id)
        assert (after["stage"], after["message"]) == (None, None)
        other = AnswerRun(run_id=run_id, question_id=question, answer=2)
        await refused("ALREADY_ANSWERED", partial(s.answer, LOCAL, other))
        await s.finished(run_id)
        late = AnswerRun(run_id=run_id, question_id="q", answer=2)
        await refused("QUESTION_NOT_FOUND", partial(s.answer, LOCAL, late))


async def test_a_failed_step_raises_the_same_after_a_crash(autojump_clock: MockClock) -> None:
    """An entry that goes on without it goes on."""

    async def fails() -> None:
        raise KeyError("x")

    async def body(ctx: RunContext) -> str:
        try:
            await ctx.run.step("s", fails)
        except FailedStep as failed:
            await ctx.run.sleep(50)
            return f"{failed.code}: {failed.message}"
        return "?"

    script(body)
    store = MemoryStore()
    async with service(store, PLUGINS) as s:
        run_id = (await s.start("go"))["run_id"]
        await trio.sleep(10)
    async with service(store, PLUGINS) as s:
        end = await s.finished(run_id)
        assert end["status"] == "succeeded"
        assert (await items(s, run_id))[0]["json"] == "PLUGIN_ERROR: KeyError: 'x'"


async def test_a_child_is_held_to_the_rules_of_its_entry(autojump_clock: MockClock) -> None:
    """Its time is limited, and it ends with a parent that is out of time."""
    async with service(timeout=30.0) as s:
        parent = (await s.start("parent", timeout=20.0))["run_id"]
        await trio.sleep(5)
        (child,) = (await s.world.state(parent)).children
        assert (await s.read(child))["deadline"] is not None
        assert (await s.finished(parent))["status"] == "timeout"
        end = await s.finished(child)
        assert (end["status"], end["cancel_reason"]) == ("canceled", "its parent is out of time")


async def test_a_child_that_cannot_be_read_hurts_nobody(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its parent is canceled, everything goes on, and lists leave it out."""
    store = MemoryStore()
    async with service(store) as s:
        parent = (await s.start("parent"))["run_id"]
        await trio.sleep(1)
        (child,) = (await s.world.state(parent)).children
        await s.cancel(LOCAL, CancelRun(run_id=child, force=True))
        await s.world.end(child)
    spoiled = MemoryStore(store.generation)
    for record in store.read_all(0, Bounds()).records:
        is_childs = record.stream == stream_of(child)
        spoiled.commit([record._replace(body=b"\xa0") if is_childs else record])
    async with service(spoiled) as s:
        await trio.sleep(1)
        await s.cancel(LOCAL, CancelRun(run_id=parent))
        assert (await s.finished(parent))["status"] == "canceled"
        assert (await s.finished((await s.start("greet"))["run_id"]))["status"] == "succeeded"
        await refused("LOG_DAMAGED", lambda: s.read(child))
        listed = (await s.list(LOCAL, ListRuns()))["runs"]
        assert parent in {run["run_id"] for run in listed}
        assert child not in {run["run_id"] for run in listed}
        assert "cannot be read and is missing from the list of runs" in caplog.text
