"""Many runs at once: counted, confirmed, and each changed once."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.events import CancelRequested
from perdure.eventlog import MemoryStore
from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.principal import LOCAL, Principal
from perdure.runtime.runs import bulk
from perdure.runtime.runs.part import runs_of
from tests.runtime.service import TWO_PLUGINS, Service, refused, service

Answer = dict[str, Any]


async def confirmed(s: Service, name: str, **request: Any) -> Answer:
    """Count, and give what a confirmed call passes."""
    counted = await s.call(name, request)
    assert (counted["run_ids"], counted["unchanged"], counted["refused"]) == ([], 0, [])
    return {**request, "count": counted["count"], "at": counted["cursor"]}


async def all_pages(s: Service, name: str, request: Answer) -> list[Answer]:
    """Go through all pages."""
    pages = [await s.call(name, request)]
    while pages[-1]["next_after"] is not None:
        pages.append(await s.call(name, {**request, "after": pages[-1]["next_after"]}))
    return pages


def ids_in(pages: list[Answer]) -> list[str]:
    """The ids that pages have, in order."""
    return [run_id for page in pages for run_id in page["run_ids"]]


async def failed_runs(s: Service, count: int, **more: Any) -> list[str]:
    """Let some runs fail."""
    run_ids = [(await s.start("fail", **more))["run_id"] for _ in range(count)]
    for run_id in run_ids:
        await s.finished(run_id)
    return run_ids


async def test_counting_changes_nothing(autojump_clock: MockClock) -> None:
    """The first call says how many runs match, and where in the log that is so."""
    async with service() as s:
        await failed_runs(s, 2)
        naps = [(await s.start("nap", args={"seconds": 50}))["run_id"] for _ in range(5)]
        await trio.sleep(1)  # those that can run do
        before = len(s.world.store.read_all(0, _all()).records)
        asked = await confirmed(s, "runs.cancel_many", entry_id="nap")
        assert asked["count"] == 5
        assert (await confirmed(s, "runs.cancel_many"))["count"] == 5
        assert (await confirmed(s, "runs.retry_many"))["count"] == 2
        assert (await confirmed(s, "runs.retry_many", status=["timeout"]))["count"] == 0
        assert len(s.world.store.read_all(0, _all()).records) == before
        assert {(await s.read(run_id))["cancel_requested"] for run_id in naps} == {False}


def _all() -> Any:
    from perdure.eventlog.store import Bounds  # noqa: PLC0415 - only here

    return Bounds(None, 100_000, 1 << 30)


async def test_exactly_the_counted_runs_are_canceled(autojump_clock: MockClock) -> None:
    """Not those that came after the count, nor those that do not match; page by page."""
    async with service() as s:
        naps = [(await s.start("nap", args={"seconds": 50}))["run_id"] for _ in range(7)]
        other = (await s.start("question"))["run_id"]
        asked = await confirmed(s, "runs.cancel_many", entry_id="nap", limit=3, reason="enough")
        late = (await s.start("nap", args={"seconds": 50}))["run_id"]
        pages = await all_pages(s, "runs.cancel_many", asked)
        assert [len(page["run_ids"]) for page in pages] == [3, 3, 1]
        assert ids_in(pages) == naps[::-1]
        assert {page["cursor"] for page in pages} == {asked["at"]}
        for run_id in naps:
            run = await s.finished(run_id)
            assert (run["status"], run["cancel_reason"]) == ("canceled", "enough")
        assert (await s.read(other))["cancel_requested"] is False
        assert (await s.read(late))["cancel_requested"] is False


async def test_runs_of_other_plugins_are_left_alone(autojump_clock: MockClock) -> None:
    """Many are canceled by the same filters as are listed (R82)."""
    async with service(plugins=TWO_PLUGINS) as s:
        args = {"seconds": 50}
        mine = [(await s.start("nap", args=args, task_id=t))["run_id"] for t in ("a", "b", "a")]
        theirs = (await s.start("nap", args=args, task_id="a", plugin_id="other"))["run_id"]
        await trio.sleep(1)
        where = {"plugin_id": "test", "task_id": "a", "status": ["running"]}
        listed = [run["run_id"] for run in (await s.call("runs.list", where))["runs"]]
        assert listed == [mine[2], mine[0]]
        asked = await confirmed(s, "runs.cancel_many", **where)
        assert ids_in(await all_pages(s, "runs.cancel_many", asked)) == listed
        for run_id in (mine[1], theirs):
            assert (await s.finished(run_id))["status"] == "succeeded"


async def test_a_page_asked_for_again_does_nothing_twice(autojump_clock: MockClock) -> None:
    """A client that lost its connection repeats its call: each run is retried once."""
    async with service() as s:
        await failed_runs(s, 6)
        asked = await confirmed(s, "runs.retry_many", limit=4)
        first = await s.call("runs.retry_many", asked)
        again = await s.call("runs.retry_many", asked)
        assert again["run_ids"] == first["run_ids"]
        pages = await all_pages(s, "runs.retry_many", asked)
        assert len(set(ids_in(pages))) == 6
        for run_id in ids_in(pages):
            assert (await s.finished(run_id))["attempt"] == 2
        assert (await s.call("runs.list", {"limit": 500}))["runs"].__len__() == 12


async def test_two_clients_with_one_confirmation_make_one_attempt(
    autojump_clock: MockClock,
) -> None:
    """At the same time, too."""
    async with service() as s:
        await failed_runs(s, 10)
        asked = await confirmed(s, "runs.retry_many")
        answers: list[Answer] = []

        async def ask() -> None:
            answers.append(await s.call("runs.retry_many", asked))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
        assert len({run_id for answer in answers for run_id in answer["run_ids"]}) == 10
        assert (await confirmed(s, "runs.cancel_many"))["count"] in range(11)
        assert len((await s.call("runs.list", {"limit": 500}))["runs"]) == 20


async def test_what_has_a_later_attempt_is_not_run_again(autojump_clock: MockClock) -> None:
    """Whether it came before the count or after it; a new count finds the new failures."""
    async with service() as s:
        first, second, third = await failed_runs(s, 3)
        again = (await s.call("runs.retry", {"run_id": first}))["run"]["run_id"]
        await s.finished(again)
        asked = await confirmed(s, "runs.retry_many")
        assert asked["count"] == 3
        await s.finished((await s.call("runs.retry", {"run_id": second}))["run"]["run_id"])
        answer = await s.call("runs.retry_many", asked)
        parents = {(await s.read(run_id))["parent_run_id"] for run_id in answer["run_ids"]}
        assert parents == {again, third}
        assert answer["unchanged"] == 1
        for run_id in answer["run_ids"]:
            await s.finished(run_id)
        assert (await confirmed(s, "runs.retry_many"))["count"] == 3


async def test_a_run_that_ended_meanwhile_stays_as_it_is(autojump_clock: MockClock) -> None:
    """It is counted as unchanged."""
    async with service() as s:
        brief = (await s.start("nap", args={"seconds": 5}))["run_id"]
        longer = (await s.start("nap", args={"seconds": 50}))["run_id"]
        asked = await confirmed(s, "runs.cancel_many")
        assert asked["count"] == 2
        await s.finished(brief)
        answer = await s.call("runs.cancel_many", asked)
        assert (answer["run_ids"], answer["unchanged"]) == ([longer], 1)
        assert (await s.read(brief))["status"] == "succeeded"


async def test_a_crash_in_the_middle_loses_nothing_and_repeats_nothing(
    autojump_clock: MockClock,
) -> None:
    """The next process goes on with the same confirmation."""
    store = MemoryStore()
    async with service(store) as s:
        parents = await failed_runs(s, 30)
        asked = await confirmed(s, "runs.retry_many", limit=20)
        with trio.move_on_after(0.1) as crash:
            await s.call("runs.retry_many", asked)
        assert crash.cancelled_caught
    async with service(store) as s:
        done = (await s.call("runs.list", {"limit": 500}))["runs"]
        assert 30 < len(done) < 50
        pages = await all_pages(s, "runs.retry_many", asked)
        assert len(set(ids_in(pages))) == 30
        for run_id in ids_in(pages):
            await s.finished(run_id)
        runs = (await s.call("runs.list", {"limit": 500}))["runs"]
        assert sorted(run["parent_run_id"] for run in runs if run["attempt"] == 2) == sorted(
            parents
        )


async def test_a_confirmation_has_to_fit(autojump_clock: MockClock) -> None:
    """Another filter, another count, half of a confirmation or a foreign cursor are refused."""
    async with service() as s:
        await failed_runs(s, 3)
        asked = await confirmed(s, "runs.retry_many", entry_id="fail")
        for wrong, code in (
            ({**asked, "count": 4}, "VALIDATION_ERROR"),
            ({**asked, "entry_id": "greet"}, "VALIDATION_ERROR"),
            ({**asked, "at": None}, "VALIDATION_ERROR"),
            ({**asked, "count": None}, "VALIDATION_ERROR"),
            ({**asked, "at": "nonsense"}, "INVALID_CURSOR"),
            ({**asked, "after": "nonsense"}, "INVALID_CURSOR"),
            ({"status": ["running"]}, "VALIDATION_ERROR"),
        ):
            await refused(code, lambda wrong=wrong: s.call("runs.retry_many", wrong))  # type: ignore[misc]
        await refused(
            "VALIDATION_ERROR", lambda: s.call("runs.cancel_many", {"status": ["succeeded"]})
        )
        assert len((await s.call("runs.list", {}))["runs"]) == 3


async def test_nobody_changes_the_runs_of_others(autojump_clock: MockClock) -> None:
    """Another tenant's runs are neither counted nor changed."""
    async with service() as s:
        await failed_runs(s, 3)
        stranger = Principal("elsewhere", "somebody")
        assert (await s.call("runs.retry_many", {}, stranger))["count"] == 0


async def test_what_cannot_be_changed_is_named(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run that refuses holds no other up; a bad moment ends the page where it was."""
    async with service() as s:
        parents = await failed_runs(s, 4)
        asked = await confirmed(s, "runs.retry_many")
        creation = runs_of(s.node).runs._creation
        retry = creation.retry_in_bulk

        async def moody(principal: Principal, parent: Any, bulk: str) -> Any:
            if parent.created.run_id == parents[2]:
                raise OperationError("SECRET_REQUIRED", "pass it again")
            if parent.created.run_id == parents[1]:
                raise OperationError("OVERLOADED", "later")
            if parent.created.run_id == parents[0]:
                raise ZeroDivisionError
            return await retry(principal, parent, bulk)

        monkeypatch.setattr(creation, "retry_in_bulk", moody)
        first = await s.call("runs.retry_many", asked)
        assert len(first["run_ids"]) == 1
        (named,) = first["refused"]
        assert (named["run_id"], named["code"]) == (parents[2], "SECRET_REQUIRED")
        after = {**asked, "after": first["next_after"]}
        await refused("OVERLOADED", lambda: s.call("runs.retry_many", after))
        monkeypatch.setattr(creation, "retry_in_bulk", retry)
        rest = await s.call("runs.retry_many", after)
        assert (len(rest["run_ids"]), rest["next_after"]) == (2, None)


async def test_a_run_that_is_broken_holds_no_other_up(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, and logged."""
    async with service() as s:
        parents = await failed_runs(s, 2)
        asked = await confirmed(s, "runs.retry_many")
        creation = runs_of(s.node).runs._creation
        retry = creation.retry_in_bulk

        async def broken(principal: Principal, parent: Any, bulk: str) -> Any:
            if parent.created.run_id == parents[1]:
                raise ZeroDivisionError
            return await retry(principal, parent, bulk)

        monkeypatch.setattr(creation, "retry_in_bulk", broken)
        answer = await s.call("runs.retry_many", asked)
        assert [named["code"] for named in answer["refused"]] == ["INTERNAL"]
        assert len(answer["run_ids"]) == 1


async def test_runs_are_changed_at_a_pace(autojump_clock: MockClock) -> None:
    """So many a second for all who ask together, and a page that takes too long ends early."""
    async with service() as s:
        for _ in range(30):
            await s.start("nap", args={"seconds": 1000})
        asked = await confirmed(s, "runs.cancel_many", limit=10)
        begin = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(s.call, "runs.cancel_many", asked)
        assert trio.current_time() - begin >= 29 / bulk.RATE
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(bulk, "PAGE_TIME", 0.04)
            page = await s.call("runs.cancel_many", {**asked, "limit": 30})
        assert len(page["run_ids"]) == bulk.TOGETHER
        assert page["next_after"] is not None


@pytest.mark.parametrize("runs", [1_000, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_many_runs_are_canceled(autojump_clock: MockClock, runs: int) -> None:
    """In pages, each run once, in bounded answers."""
    async with service(runs=10, bulk_rate=1e6) as s:
        s.node.env.delay = 0  # type: ignore[attr-defined]

        async def start_some() -> None:
            for number in range(100):
                await s.start("question", task_id=f"t{number % 2}")

        async with trio.open_nursery() as nursery:
            for _ in range(runs // 100):
                nursery.start_soon(start_some)
        asked = await confirmed(s, "runs.cancel_many", task_id="t1", limit=500)
        assert asked["count"] == runs // 2
        asked = await confirmed(s, "runs.cancel_many", limit=500)
        assert asked["count"] == runs
        pages = await all_pages(s, "runs.cancel_many", asked)
        assert len(pages) == runs // 500
        assert len(set(ids_in(pages))) == runs
        await runs_of(s.node).executor.settled()
        assert (await confirmed(s, "runs.cancel_many", force=True))["count"] == 0
        statuses = await runs_of(s.node).index.statuses()
        requested = [
            record
            for record in s.world.store.read_all(0, _all()).records
            if record.name == CancelRequested.event_name
        ]
        assert statuses == {"canceled": runs}
        assert len(requested) <= runs


async def test_a_retry_that_is_asked_for_again_with_its_key_is_made_once(
    autojump_clock: MockClock,
) -> None:
    """The key finds the attempt, also in a race; for another run it is refused."""
    async with service() as s:
        parent, other = await failed_runs(s, 2)
        request = {"run_id": parent, "idempotency_key": "k"}
        made: list[str] = []

        async def ask() -> None:
            made.append((await s.call("runs.retry", request))["run"]["run_id"])

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
        assert len(set(made)) == 1
        await s.finished(made[0])
        again = (await s.call("runs.retry", request))["run"]
        assert (again["run_id"], again["attempt"]) == (made[0], 2)
        assert again["idempotency_key"] == "k"
        await refused(
            "IDEMPOTENCY_CONFLICT",
            lambda: s.call("runs.retry", {"run_id": other, "idempotency_key": "k"}),
        )
        third = (await s.call("runs.retry", {"run_id": parent}))["run"]
        assert third["attempt"] == 3
        # Retrying in bulk and with a key are different claims.
        assert (await s.call("runs.create", _greeting("k")))["run"]["run_id"] != made[0]


def _greeting(key: str) -> Answer:
    return {"plugin_id": "test", "entry_id": "greet", "args": {}, "idempotency_key": key}


def test_the_local_principal_is_allowed_to_do_both() -> None:
    """Nothing stands in the way of whoever sits at the machine."""
    assert {"cancel", "run"} <= set(LOCAL.permissions)
