from __future__ import annotations

import pytest
import trio

from perdure import RunContext, entry, plugin
from perdure.demo import Demo
from perdure.testing import run_entry


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
        run_entry(Demo, "ask", virtual_seconds=600)
