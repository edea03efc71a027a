from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import ANY

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.commands import Activate, Answer, Deliver, Finish, RequestCancel, RunCommand
from perdure.actors.run.core import RUN, Run
from perdure.actors.run.events import (
    RUN_EVENTS,
    ExportAppended,
    ProgressReported,
    RunEnded,
    RunError,
    RunEvent,
    StepRecorded,
)
from perdure.actors.run.kind import RUN_KIND
from perdure.actors.run.status import CancelIntent, CancelMode, Status
from perdure.actors.run.stream import stream_of
from perdure.eventlog import MemoryStore
from perdure.eventlog.store import Bounds
from tests.runtime.world import CALLS, world


@pytest.fixture(autouse=True)
def no_calls() -> None:
    """Begin with no calls counted."""
    CALLS.clear()


# A run from beginning to end


async def test_a_run_is_queued_then_running_then_succeeded(autojump_clock: MockClock) -> None:
    """Its returned value becomes one json item and the only result (R2, R3, R5)."""
    async with world() as w:
        run = await w.end(await w.create("greet", name="Ada"))
        assert run.status is Status.SUCCEEDED
        assert run.created.at < (run.started_at or 0) < (run.finished_at or 0)
        (item,) = w.events(run.created.run_id, ExportAppended)
        assert (item.type, item.json, run.result) == ("json", "hello Ada", (1,))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (None, RunError(code="PLUGIN_ERROR", message="ZeroDivisionError: oops", details=ANY)),
        ("MY_CODE", RunError(code="MY_CODE", message="as you wish", retriable=True)),
        ("ENVELOPE", RunError(code="MINE", message="m", details={"a": 1})),
    ],
)
async def test_a_failure_has_a_code(
    autojump_clock: MockClock, code: str | None, error: RunError
) -> None:
    """Raised, or returned with its message and details, an error is the run's (R6, R108, R109)."""
    async with world() as w:
        run = await w.end(await w.create("fail", code=code))
        assert (run.status, run.error) == (Status.FAILED, error)


async def test_arguments_of_the_wrong_type_never_reach_the_entry(
    autojump_clock: MockClock,
) -> None:
    """A log written for another version of the entry fails clearly."""
    async with world() as w:
        run = await w.end(await w.create("nap", seconds="long"))
        assert run.error is not None
        assert "Expected `float`, got `str`" in run.error.message


async def test_an_entry_that_is_not_loaded_ends_the_run(autojump_clock: MockClock) -> None:
    """It passes through running and fails as not ready, which can be tried again."""
    async with world() as w:
        run = await w.end(await w.create("nowhere"))
        assert run.error is not None
        assert (run.error.code, run.error.retriable) == ("NOT_READY", True)
        assert run.started_at is not None


@pytest.mark.parametrize("final", [True, False])
async def test_exports_are_items_and_results_only_when_marked(
    autojump_clock: MockClock, final: bool
) -> None:
    """Each kind is one item with its description (R14, R15, R98, R105)."""
    async with world() as w:
        run = await w.end(await w.create("exports", final=final))
        items = w.events(run.created.run_id, ExportAppended)
        assert [item.type for item in items] == ["text", "url", "binary_url", "json"]
        assert (items[0].description, items[0].mime) == ("a description", "text/plain")
        assert run.result == ((1,) if final else ())


async def test_progress_is_thinned_and_its_last_value_is_kept(autojump_clock: MockClock) -> None:
    """A second of reports every millisecond makes about ten events (R42, R97, R112)."""
    async with world() as w:
        run = await w.end(await w.create("spam", n=1000))
        reports = w.events(run.created.run_id, ProgressReported)
        assert 5 <= len(reports) <= 13
        assert run.progress == 0.999


async def test_live_state_is_the_fold(autojump_clock: MockClock) -> None:
    """What the actor knows is what the log says (R34)."""
    async with world() as w:
        run_id = await w.create("steps", n=4)
        run = await w.end(run_id)
        records = w.store.read_stream(stream_of(run_id), 0, Bounds()).records
        assert RUN.replay([RUN_EVENTS.decode(r) for r in records]) == run
        assert records[-1].seal == 1
        assert len(w.events(run_id, RunEnded)) == 1


# Limits


async def test_more_than_the_limit_wait_as_queued(autojump_clock: MockClock) -> None:
    """The plugin's limit of three holds; the others follow."""
    async with world() as w:
        ids = [await w.create("nap", seconds=10) for _ in range(7)]
        await trio.sleep(1)
        states = [(await w.state(run_id)).status for run_id in ids]
        assert states.count(Status.RUNNING) == w.executor.running == 3
        assert states.count(Status.QUEUED) == 4
        for run_id in ids:
            assert (await w.end(run_id)).status is Status.SUCCEEDED


# Cancelling and time


async def test_a_polite_entry_ends_canceled(autojump_clock: MockClock) -> None:
    """Acknowledged in an exception group too, canceled and never failed (R9, R76, R99, R103)."""
    async with world() as w:
        run_id = await w.create("polite")
        await trio.sleep(1)
        request = RequestCancel(by="b", reason="enough", at=w.executor.context.env.now())
        assert (await w.executor.ask(run_id, request)).state.status is Status.CANCEL_REQUESTED
        run = await w.end(run_id)
        assert run.status is Status.CANCELED
        assert trio.current_time() < 5, "by itself, and not after its grace"
        assert run.error == RunError(code="CANCELED", message="enough")


@pytest.mark.parametrize("shielded", [False, True])
async def test_a_deaf_entry_is_interrupted_and_then_left_behind(
    autojump_clock: MockClock, shielded: bool
) -> None:
    """After its grace it is canceled by the host, even if it never ends (R77)."""
    async with world(cancel_grace=5.0) as w:
        run_id = await w.create("deaf", shielded=shielded)
        await trio.sleep(1)
        started = trio.current_time()
        await w.executor.ask(run_id, RequestCancel(by="b", at=w.executor.context.env.now()))
        run = await w.end(run_id)
        assert run.status is Status.CANCELED
        assert trio.current_time() - started == pytest.approx(10 if shielded else 5, abs=0.5)


async def test_a_queued_run_is_canceled_without_being_called(autojump_clock: MockClock) -> None:
    """It never starts (R4)."""
    async with world() as w:
        first = [await w.create("nap", seconds=10) for _ in range(3)]
        late, called = await w.create("called"), await w.create("called")
        await w.executor.ask(late, RequestCancel(by="b", at=1))
        for run_id in first:
            await w.end(run_id)
        run = await w.end(late)
        assert (run.status, run.started_at) == (Status.CANCELED, None)
        await w.end(called)
        await trio.sleep(100)  # its turn came and went
        assert [called] == CALLS


async def test_a_forced_cancel_waits_for_nobody(autojump_clock: MockClock) -> None:
    """The host ends the run at once, and a harder request shortens a softer one's grace (R8)."""
    async with world(cancel_grace=5.0) as w:
        for first in (CancelMode.FORCE, CancelMode.COOPERATIVE):
            run_id = await w.create("deaf", shielded=True)
            await trio.sleep(1)
            await w.executor.ask(run_id, RequestCancel(by="b", at=1, mode=first))
            started = trio.current_time()
            await w.executor.ask(run_id, RequestCancel(by="b", at=1, mode=CancelMode.FORCE))
            assert (await w.end(run_id)).status is Status.CANCELED
            assert trio.current_time() - started < 0.5


@pytest.mark.parametrize("shielded", [False, True])
async def test_time_runs_out(autojump_clock: MockClock, shielded: bool) -> None:
    """At its deadline a run ends in timeout, soon after if its entry does not stop (R7)."""
    async with world(cancel_grace=5.0) as w:
        run = await w.end(await w.create("deaf", limit=30, shielded=shielded))
        assert run.status is Status.TIMEOUT
        assert run.error is not None
        assert run.error.code == "TIMEOUT"
        assert run.finished_at is not None
        assert run.started_at is not None
        lasted = (run.finished_at - run.started_at) / 1e9
        assert lasted == pytest.approx(35 if shielded else 30, abs=0.1)


async def test_a_parents_cancel_reaches_its_children(autojump_clock: MockClock) -> None:
    """Nobody is left working for a run that is over."""
    async with world() as w:
        run_id = await w.create("parent")
        await trio.sleep(1)
        (child,) = (await w.state(run_id)).children
        assert (await w.state(child)).status is Status.RUNNING
        await w.executor.ask(run_id, RequestCancel(by="b", at=1, intent=CancelIntent.STOP))
        assert (await w.end(run_id)).status is Status.CANCELED
        assert (await w.end(child)).status is Status.CANCELED


# Questions


async def test_a_question_waits_for_its_answer(autojump_clock: MockClock) -> None:
    """The run stays running, its stage says what it waits for."""
    async with world() as w:
        run_id = await w.create("question")
        await trio.sleep(1)
        run = await w.state(run_id)
        assert (run.status, run.stage) == (Status.RUNNING, "input_required")
        (question,) = run.open_questions
        await w.executor.ask(run_id, Answer(question_id=question, answer=["this"], by="b", at=1))
        run = await w.end(run_id)
        assert w.events(run_id, ExportAppended)[0].json == ["this"]


# Crashes


async def test_recorded_steps_are_not_done_again(autojump_clock: MockClock) -> None:
    """Killed at any moment and taken up again, a run ends once, its steps and exports once each."""
    for moment in range(1, 60):
        CALLS.clear()
        store = MemoryStore()
        with trio.move_on_after(moment * 0.001):
            async with world(store) as w:
                await w.create("steps", n=3)
                await trio.sleep_forever()
        recorded = {
            RUN_EVENTS.decode(record).step
            for record in store._records
            if record.name == StepRecorded.event_name
        }
        done_before = {f"step-{n}": CALLS.count(f"step {n}") for n in range(3)}
        async with world(store) as w:
            ids = [r.stream.removeprefix("run/") for r in store._records if r.name == "run.created"]
            for run_id in ids:
                run = await w.end(run_id)
                for n in range(3):
                    again = CALLS.count(f"step {n}") - done_before[f"step-{n}"]
                    assert again == (0 if f"step-{n}" in recorded else 1)
                assert run.status is Status.SUCCEEDED
                texts = [item.text for item in w.events(run_id, ExportAppended) if item.text]
                assert texts == ["did 0", "did 1", "did 2"]
                assert len(w.events(run_id, RunEnded)) == 1


async def test_a_sleep_goes_on_where_it_was(autojump_clock: MockClock) -> None:
    """A restart does not begin it again."""
    store = MemoryStore()
    with trio.move_on_after(30):
        async with world(store) as w:
            run_id = await w.create("nap", seconds=50)
            await trio.sleep_forever()
    started = trio.current_time()
    async with world(store) as w:
        run = await w.end(run_id)
        assert run.status is Status.SUCCEEDED
        assert trio.current_time() - started == pytest.approx(20, abs=1)


async def test_failed_tries_are_counted_over_crashes(autojump_clock: MockClock) -> None:
    """Retries and their delays survive a restart."""
    store = MemoryStore()
    with trio.move_on_after(15):
        async with world(store) as w:
            run_id = await w.create("flaky", good_after=3)
            await trio.sleep_forever()
    assert len(CALLS) == 2
    async with world(store) as w:
        run = await w.end(run_id)
        assert run.status is Status.SUCCEEDED
        assert len(CALLS) == 4


async def test_a_fragile_entry_is_not_called_twice(autojump_clock: MockClock) -> None:
    """Its run is lost, and can be tried again (R33)."""
    store = MemoryStore()
    with trio.move_on_after(5):
        async with world(store) as w:
            run_id = await w.create("fragile")
            await trio.sleep_forever()
    async with world(store) as w:
        run = await w.end(run_id)
        assert run.error is not None
        assert (run.error.code, run.error.retriable) == ("HOST_LOST", True)


@pytest.mark.parametrize(
    ("entry_id", "args", "taken"),
    [
        ("question", {}, 0),  # who knows how long
        ("nap", {"seconds": 90}, 0),
        ("nap", {"seconds": 20}, 20),  # it can end in time
        ("steps_and_sleep", {}, 10),  # it does something beside its sleep
    ],
)
async def test_nobody_waits_for_what_only_waits(
    autojump_clock: MockClock, entry_id: str, args: dict[str, Any], taken: int
) -> None:
    """A host that goes down waits for runs that could end, not for those that only wait."""
    async with world() as w:
        await w.create(entry_id, **args)
        await trio.sleep(1)
        w.executor.close()
        began = trio.current_time()
        await w.executor.at_rest(w.executor.context.env.now() + 30_000_000_000)
        assert trio.current_time() - began == pytest.approx(max(0, taken - 1), abs=0.2)


async def test_a_drain_leaves_runs_for_the_next_host(autojump_clock: MockClock) -> None:
    """Nothing is canceled; the next host goes on."""
    store = MemoryStore()
    async with world(store) as w:
        run_id = await w.create("nap", seconds=50)
        await trio.sleep(1)
        w.executor.drain()
        await trio.sleep(1)
        run = await w.state(run_id)
        assert (run.status, run.active) == (Status.RUNNING, False)
    async with world(store) as w:
        assert (await w.end(run_id)).status is Status.SUCCEEDED


# What we ourselves break


@pytest.mark.parametrize("breaks", [Deliver, Finish, Activate])
async def test_a_run_that_we_break_touches_no_other(
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    breaks: type,
) -> None:
    """It ends as failed if that is possible, it is logged, and everything else goes on."""
    async with world() as w:
        broke: list[RunCommand] = []

        def broken(run: Run, command: RunCommand) -> tuple[RunEvent, ...]:
            if isinstance(command, breaks) and not broke:
                broke.append(command)
                raise ZeroDivisionError("a bug")
            return RUN.decide(run, command)

        kind = replace(RUN_KIND, decider=replace(RUN, decide=broken))
        monkeypatch.setattr(w.executor.runs, "_kind", kind)
        bad = await w.create("steps", n=1)
        with trio.move_on_after(100):
            run = await w.end(bad)
            assert run.status is Status.FAILED
            assert run.error is not None
            assert run.error.code in {"INTERNAL", "PLUGIN_ERROR"}
        assert "a bug" in caplog.text
        assert (await w.state(bad)).status.is_terminal == (breaks is not Activate)
        assert (await w.end(await w.create("steps", n=2))).status is Status.SUCCEEDED
        assert w.executor.running == 0


async def test_a_run_that_cannot_be_read_stops_no_start(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are taken up; what is wrong is logged."""
    store = MemoryStore()
    async with world(store) as w:
        bad = await w.create("nap", seconds=50)
        good = await w.create("nap", seconds=50)
        await trio.sleep(1)
    stream = stream_of(bad)
    odd = store.read_stream(stream, 0, Bounds()).records[-1]
    position = store.head().position + 1
    store.commit(
        [
            odd._replace(
                position=position,
                version=odd.version + 1,
                name="run.of-tomorrow",
                event_id=bytes(16),
            )
        ]
    )
    async with world(store) as w:
        assert (await w.end(good)).status is Status.SUCCEEDED
        assert f"run {bad} cannot be taken up" in caplog.text
