from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from perdure import Retry, RunCancelled, RunContext, entry, plugin
from perdure.demo import Demo
from perdure.fake import FakeRun, fake_context
from perdure.runtime.plugins.current_run import CurrentRun
from perdure.testing import UnansweredQuestion, run_entry


@plugin("careless")
class Careless:
    """Entries with mistakes that only a crash shows."""

    def __init__(self) -> None:
        """Remember something in memory, which is the mistake."""
        self.done = 0

    @entry
    async def counts_in_memory(self, ctx: RunContext) -> int:
        """Count steps in the process instead of in the log."""

        async def body() -> int:
            self.done += 1
            return self.done

        for number in range(3):
            await ctx.run.step(f"s{number}", body)
        return self.done

    @entry
    async def sleeps_for_days(self, ctx: RunContext) -> str:
        """Sleep two days."""
        await ctx.run.sleep(2 * 86_400)
        return "morning"


def test_an_entry_runs_to_its_end_in_no_time() -> None:
    """Hours of delay pass in virtual time; result and exports are there."""
    ran = run_entry(Demo, "count", {"to": 10, "delay": 3600})
    assert (ran.record["status"], ran.record["progress"], ran.lives) == ("succeeded", 1.0, 1)
    assert len(ran.items) == 11


def test_a_crash_after_every_step_is_one_word() -> None:
    """Each step costs a life, and the result is the same."""
    calm = run_entry(Demo, "steps", {"n": 5, "delay": 1})
    shaken = run_entry(Demo, "steps", {"n": 5, "delay": 1}, crash_after_every_step=True)
    assert shaken.lives == 6
    assert [item["json"] for item in shaken.items] == [item["json"] for item in calm.items]


def test_crashing_shows_what_was_kept_in_memory() -> None:
    """An entry that relies on its process is found out."""
    assert run_entry(Careless, "counts_in_memory").items[0]["json"] == 3
    shaken = run_entry(Careless, "counts_in_memory", crash_after_every_step=True)
    assert shaken.items[0]["json"] != 3


def test_questions_are_answered_from_the_script() -> None:
    """By the name of the step that asks."""
    ran = run_entry(Demo, "ask", answers={"ask-1": {"go": True}})
    assert ran.items[0]["json"] == {"go": True}


def test_a_sleep_of_days_is_tested_in_milliseconds() -> None:
    """Virtual time jumps to the next thing that happens."""
    assert run_entry(Careless, "sleeps_for_days").items[0]["json"] == "morning"


def test_a_run_that_never_ends_is_reported() -> None:
    """A question without an answer does not hang the test."""
    with pytest.raises(trio.TooSlowError):
        run_entry(Careless, "sleeps_for_days", virtual_seconds=600)


@plugin("patient")
class Patient:
    """Everything that has a name survives a crash."""

    @entry
    async def all_kinds(self, ctx: RunContext) -> list[object]:
        """Sleep, ask, start a child, do a step."""
        await ctx.run.sleep(60)
        answer = await ctx.run.ask("which?")
        child = await ctx.run.start("patient", "quick")
        tries = iter(range(9))

        async def body() -> int:
            if next(tries) == 0:
                raise OSError("not yet")
            return 7

        value = await ctx.run.step("s", body, retry=Retry(tries=2))
        await ctx.run.export_text("said")
        ctx.run.progress(1.0)
        return [answer, bool(child), value]

    @entry
    async def quick(self, ctx: RunContext) -> None:
        """Do nothing."""


def test_every_named_thing_is_crashed_after() -> None:
    """A sleep, a question and a child cost a life each, as a step does."""
    ran = run_entry(Patient, "all_kinds", answers={"ask-1": "a"}, crash_after_every_step=True)
    assert ran.record["status"] == "succeeded"
    assert ran.lives == 5
    assert ran.items[-1]["json"] == ["a", True, 7]


def test_a_question_without_an_answer_says_what_to_pass() -> None:
    """Not that time ran out."""
    with pytest.raises(UnansweredQuestion, match=r"pass answers=\{'ask-1'"):
        run_entry(Demo, "ask")


def test_an_entry_can_be_called_with_a_fake_context() -> None:
    """What it does is noted, steps are done, answers come from the test."""
    ctx = fake_context(answers={"ask-1": "a"})
    assert trio.run(Patient().all_kinds, ctx) == ["a", True, 7]
    assert (ctx.run.slept, ctx.run.steps) == (60, {"s": 7})
    assert ctx.run.exports == [{"type": "text", "content": "said", "description": None}]
    assert ctx.run.progress_reports == [(1.0, None)]
    assert ctx.run.started == [("patient", "quick", {})]
    with pytest.raises(AssertionError, match="pass answers="):
        trio.run(Patient().all_kinds, fake_context())
    with pytest.raises(RunCancelled):
        fake_context(cancelled=True).run.check_cancelled()


def test_a_fake_run_offers_what_a_real_one_does() -> None:
    """An entry finds nothing missing."""
    offered = {name for name in vars(CurrentRun) if not name.startswith("_")}
    assert offered <= {name for name in dir(FakeRun()) if not name.startswith("_")}


async def test_a_fake_run_notes_bytes_however_they_arrive() -> None:
    """Whole, piece by piece, or in time."""

    async def arriving() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    run = FakeRun()
    for data in (b"ab", [b"a", b"b"], arriving()):
        await run.export_bytes(data, "a file", mime="x/y")
    noted = {"type": "bytes", "content": b"ab", "description": "a file", "mime": "x/y"}
    assert run.exports == [noted] * 3
