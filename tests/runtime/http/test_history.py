"""What happened inside runs, and which runs a run has started, over HTTP."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from tests.runtime.http.client import client, error_of
from tests.runtime.world import CALLS


async def test_a_history_is_read_in_pages_now_and_as_it_was(autojump_clock: MockClock) -> None:
    """Tries, values and the end, each with its time; ``at`` gives what was known by then."""
    CALLS.clear()
    async with client() as asking:
        run_id = await asking.started("flaky", args={"good_after": 2})
        await asking.ended(run_id)
        whole = (await asking.get(f"/runs/{run_id}/history")).json()
        assert [row["what"] for row in whole["history"]] == [
            "activated",
            "step_failed",
            "step_failed",
            "step_recorded",
            "exported",
            "deactivated",
            "ended",
        ]
        assert whole["next_after"] is None
        query: dict[str, Any] = {"limit": 3, "at": whole["cursor"]}
        pages = []
        while True:
            page = (await asking.get(f"/runs/{run_id}/history", params=query)).json()
            pages.append(page["history"])
            if page["next_after"] is None:
                break
            query["after"] = page["next_after"]
        assert len(pages) > 1
        assert [row for rows in pages for row in rows] == whole["history"]
        then = {"at": whole["history"][1]["at"]}
        early = (await asking.get(f"/runs/{run_id}/history", params=then)).json()["history"]
        assert early == whole["history"][: len(early)]
        assert 0 < len(early) < len(whole["history"])


async def test_a_history_that_cannot_be_read_says_why(autojump_clock: MockClock) -> None:
    """A run that does not exist, a cursor that is none, a parameter that nobody knows."""
    async with client() as asking:
        run_id = await asking.started("greet")
        for address, status, code in (
            ("/runs/none/history", 404, "RUN_NOT_FOUND"),
            (f"/runs/{run_id}/history?at={'A' * 28}", 400, "INVALID_CURSOR"),
            (f"/runs/{run_id}/history?limit=0", 422, "VALIDATION_ERROR"),
            (f"/runs/{run_id}/history?colour=red", 422, "VALIDATION_ERROR"),
        ):
            assert error_of(await asking.get(address), status)["code"] == code


async def test_a_child_names_its_parent_and_lists_find_it(autojump_clock: MockClock) -> None:
    """``started_by`` is in its record, in what followers see, and a filter of lists."""
    async with client() as asking:
        parent = await asking.started("brood")
        other = await asking.started("greet")
        await asking.ended(parent)
        await trio.sleep(5)
        children = (await asking.get("/runs", params={"started_by": parent})).json()["runs"]
        assert len(children) == 12
        assert {child["started_by"] for child in children} == {parent}
        assert (await asking.record(parent))["children"] == 12
        tops = (await asking.get("/runs", params={"top_level": "true"})).json()["runs"]
        assert {run["run_id"] for run in tops} == {parent, other}
        none = (await asking.get("/runs", params={"started_by": other})).json()
        assert none["runs"] == []
