"""The history of a run, read through the table of operations."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.eventlog import MemoryStore
from perdure.runtime.kernel.principal import LOCAL, Principal
from perdure.runtime.runs import queries
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import AnswerRun, CancelRun
from tests.runtime.service import Service, refused, service
from tests.runtime.world import CALLS


async def whole(s: Service, run_id: str, **more: Any) -> list[dict[str, Any]]:
    """All rows of a run, page by page."""
    rows, asked = list[dict[str, Any]](), {"run_id": run_id, **more}
    while True:
        page = await s.call("runs.history", asked)
        rows += page["history"]
        if page["next_after"] is None:
            return rows
        asked |= {"after": page["next_after"], "at": page["cursor"]}


def names(rows: list[dict[str, Any]]) -> list[str]:
    """What happened, in order."""
    return [row["what"] for row in rows]


async def test_a_history_has_all_that_happened_in_order(autojump_clock: MockClock) -> None:
    """Tries of a step with their times, the value, and the end."""
    CALLS.clear()
    async with service() as s:
        run_id = (await s.start("flaky", args={"good_after": 2}))["run_id"]
        await s.finished(run_id)
        rows = await whole(s, run_id)
        assert names(rows) == [
            "activated",
            "step_failed",
            "step_failed",
            "step_recorded",
            "exported",
            "deactivated",
            "ended",
        ]
        assert [row["tries"] for row in rows if "tries" in row] == [1, 2]
        assert rows[1]["retry_at"] <= rows[2]["at"]
        assert rows[3]["preview"] == '"good"'
        assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)


async def test_a_question_and_its_answer_are_in_the_history(autojump_clock: MockClock) -> None:
    """Who answered, and when."""
    async with service() as s:
        run_id = (await s.start("question"))["run_id"]
        await trio.sleep(1)
        (question_id,) = (await s.read(run_id))["questions"]
        await s.answer(LOCAL, AnswerRun(run_id=run_id, question_id=question_id, answer=7))
        await s.finished(run_id)
        asked, answered = (await whole(s, run_id))[1:3]
        assert (asked["what"], asked["preview"]) == ("question_asked", "which?")
        assert (answered["what"], answered["by"], answered["preview"]) == (
            "answered",
            "local/local",
            "7",
        )
        assert answered["at"] - asked["at"] >= 0.5


async def test_children_and_cancels_are_in_the_history(autojump_clock: MockClock) -> None:
    """The child by its id; the request with the moment at which a harder one follows."""
    async with service() as s:
        run_id = (await s.start("parent"))["run_id"]
        await trio.sleep(1)
        await s.cancel(LOCAL, CancelRun(run_id=run_id, reason="enough"))
        await s.finished(run_id)
        rows = await whole(s, run_id)
        assert names(rows)[:4] == ["activated", "child_started", "sleep_begun", "cancel_requested"]
        await s.read(rows[1]["child_run_id"])
        assert rows[3]["deadline"] > rows[3]["at"]
        assert rows[-1]["outcome"] == "canceled"


async def test_a_lost_host_is_in_the_history_and_a_drained_one_too(
    autojump_clock: MockClock,
) -> None:
    """Each activation is over in its own way."""
    store = MemoryStore()
    async with service(store) as s:
        run_id = (await s.start("nap", args={"seconds": 50}))["run_id"]
        await trio.sleep(1)
    async with service(store) as s:  # the first was lost
        await trio.sleep(1)
        runs_of(s.node).drain()
        await runs_of(s.node).settled()
    async with service(store) as s:
        await s.finished(run_id)
        rows = await whole(s, run_id)
    assert [row["how"] for row in rows if "how" in row] == ["lost", "drained", "ended"]
    assert [row["epoch"] for row in rows if row["what"] == "activated"] == [1, 2, 3]


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_a_history_comes_in_pages(autojump_clock: MockClock, limit: int) -> None:
    """Each row once and in order, from any place; what one record tells stays together."""
    store = MemoryStore()
    async with service(store) as s:
        run_id = (await s.start("nap", args={"seconds": 50}))["run_id"]
        await trio.sleep(1)
    async with service(store) as s:
        await s.finished(run_id)
        rows = await whole(s, run_id)
        assert "lost" in [row.get("how") for row in rows]
        assert await whole(s, run_id, limit=limit) == rows
        page = await s.call("runs.history", {"run_id": run_id, "limit": limit})
        assert limit <= len(page["history"]) <= limit + 1


async def test_a_page_of_a_history_is_bounded_by_bytes(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows are asked for; a large record ends its page."""
    async with service() as s:
        run_id = (await s.start("pour", args={"items": 20, "size": 1000}))["run_id"]
        await s.finished(run_id)
        rows = await whole(s, run_id, limit=500)
        monkeypatch.setattr(queries, "PAGE_BYTES", 3000)
        page = await s.call("runs.history", {"run_id": run_id, "limit": 500})
        assert 0 < len(page["history"]) <= 4
        assert await whole(s, run_id, limit=500) == rows


async def test_a_history_can_be_read_as_it_was(autojump_clock: MockClock) -> None:
    """At a cursor there is what had happened by then; before its creation there was no run."""
    async with service() as s:
        early = await s.cursor()
        run_id = (await s.start("slow_exports", args={"n": 4}))["run_id"]
        await trio.sleep(1.5)
        then = await s.call("runs.history", {"run_id": run_id})
        await s.finished(run_id)
        assert await s.call("runs.history", {"run_id": run_id, "at": then["cursor"]}) == then
        rows = await whole(s, run_id)
        assert rows[: len(then["history"])] == then["history"]
        assert len(rows) > len(then["history"])
        for after in (early, (await s.call("runs.get", {"run_id": run_id}))["cursor"]):
            page = await s.call("runs.history", {"run_id": run_id, "after": after})
            assert page["history"] == (rows if after == early else [])
        past = partial(s.call, "runs.history", {"run_id": run_id, "at": early})
        await refused("RUN_NOT_FOUND", past)


async def test_a_run_that_waits_for_its_turn_has_no_history(autojump_clock: MockClock) -> None:
    """Nothing has happened inside it yet."""
    async with service(runs=1) as s:
        await s.start("deaf")
        waiting = (await s.start("greet"))["run_id"]
        assert await whole(s, waiting) == []


async def test_nobody_reads_the_history_of_what_is_not_theirs(autojump_clock: MockClock) -> None:
    """A run of another tenant does not exist."""
    async with service() as s:
        run_id = (await s.start("greet"))["run_id"]
        asked = {"run_id": run_id}
        stranger = Principal("elsewhere", "me")
        await refused("RUN_NOT_FOUND", lambda: s.call("runs.history", asked, stranger))
