"""Reading over HTTP what runs have put out and logged."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from perdure.eventlog.cursor import format_cursor
from tests.runtime.http.client import client, error_of


async def test_exports_are_replayed_in_pages(autojump_clock: MockClock) -> None:
    """R83 R84 R85: items in order, so many at most, next_after null at the end, always a cursor."""
    async with client() as asking:
        run_id = await asking.started("slow_exports", args={"n": 5})
        await asking.ended(run_id)
        first = (await asking.get(f"/runs/{run_id}/export", params={"limit": 2})).json()
        assert set(first) == {"items", "next_after", "cursor"}
        assert [item["text"] for item in first["items"]] == ["item 0", "item 1"]
        assert first["next_after"] == first["items"][-1]["export_item_id"]
        rest = await asking.get(f"/runs/{run_id}/export", params={"after": first["next_after"]})
        assert [item["text"] for item in rest.json()["items"]] == ["item 2", "item 3", "item 4"]
        assert rest.json()["next_after"] is None
        assert rest.json()["cursor"]
        last = rest.json()["items"][-1]["export_item_id"]
        nothing = (await asking.get(f"/runs/{run_id}/export", params={"after": last})).json()
        assert (nothing["items"], nothing["next_after"]) == ([], None)
        for limit in ("0", "-1", "501", "1e3", "", "many"):
            wrong = await asking.get(f"/runs/{run_id}/export", params={"limit": limit})
            assert error_of(wrong, 422)["code"] == "VALIDATION_ERROR"


async def test_a_page_of_large_exports_ends_early(autojump_clock: MockClock) -> None:
    """However many are asked for, an answer has some MiB at most; the pages together have all."""
    async with client() as asking:
        run_id = await asking.started("pour", args={"items": 40, "size": 60_000})
        await asking.ended(run_id)
        sizes: list[int] = []
        after = None
        while not sizes or after is not None:
            params = {"limit": 500} if after is None else {"limit": 500, "after": after}
            page = (await asking.get(f"/runs/{run_id}/export", params=params)).json()
            sizes.append(len(page["items"]))
            after = page["next_after"]
        assert sizes == [18, 18, 4]


async def test_exports_go_on_from_a_cursor(autojump_clock: MockClock) -> None:
    """R87: with the cursor of any answer, each item that came later is seen exactly once."""
    async with client() as asking:
        before = (await asking.get("/runs")).json()["cursor"]
        run_id = await asking.started("slow_exports", args={"n": 6})
        seen: list[str] = []
        after = before
        while len(seen) < 6:
            page = (await asking.get(f"/runs/{run_id}/export", params={"after": after})).json()
            seen += [item["text"] for item in page["items"]]
            after = page["cursor"]
            await trio.sleep(1.4)
        assert seen == [f"item {number}" for number in range(6)]
        then = await asking.get(f"/runs/{run_id}/export", params={"at": before})
        assert error_of(then, 404)["code"] == "RUN_NOT_FOUND"


async def test_a_cursor_that_is_none_is_refused(autojump_clock: MockClock) -> None:
    """R86: 400 INVALID_CURSOR, wherever a cursor is taken, and never a silent restart."""
    async with client() as asking:
        run_id = await asking.started("exports")
        await asking.ended(run_id)
        other = await asking.started("exports")
        foreign = "AQEjRWeJq83vAAAAAAAAAAAAAAAA"
        head = await asking.behind.node.log.head()
        restored = format_cursor("f" * 16, head)  # the same event, in another generation
        for path, bad in [
            (f"/runs/{run_id}", {"at": restored}),
            ("/runs", {"at": restored}),
            ("/runs", {"after": restored}),
            (f"/runs/{run_id}/export", {"after": restored}),
            (f"/runs/{run_id}/logs", {"after": restored}),
            (f"/runs/{run_id}", {"at": foreign}),
            (f"/runs/{run_id}", {"at": "yesterday"}),
            ("/runs", {"after": foreign}),
            ("/runs", {"after": "x"}),
            (f"/runs/{run_id}/export", {"after": foreign}),
            (f"/runs/{run_id}/export", {"after": f"{other}.1"}),
            (f"/runs/{run_id}/export", {"after": f"{run_id}.5"}),
            (f"/runs/{run_id}/export", {"after": f"{run_id}.{'9' * 5000}"}),
            (f"/runs/{run_id}/logs", {"after": "x"}),
        ]:
            assert error_of(await asking.get(path, params=bad), 400)["code"] == "INVALID_CURSOR"


async def test_what_was_logged_is_read_in_pages(autojump_clock: MockClock) -> None:
    """The lines of a run, in order, each with its run."""
    async with client() as asking:
        run_id = await asking.started("spam", args={"n": 50})
        await asking.ended(run_id)
        page = (await asking.get(f"/runs/{run_id}/logs", params={"limit": 3})).json()
        assert set(page) == {"lines", "dropped", "next_after", "cursor"}
        assert {line["run_id"] for line in page["lines"]} == {run_id}
