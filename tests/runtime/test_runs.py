from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from eventlog import MemoryStore
from runtime.principal import LOCAL, Principal
from runtime.requests import (
    AnswerRun,
    CancelRun,
    CreateRun,
    ExportRun,
    GetRun,
    ListRuns,
    RetryRun,
)
from tests.runtime.service import refused, service

# Creating


async def test_a_created_run_is_queued_and_readable(autojump_clock: MockClock) -> None:
    """The answer has the record, and the cursor it is true at (R2, R21, R24, R25, R69)."""
    async with service() as s:
        request = CreateRun(
            plugin_id="test", entry_id="greet", args={}, task_id="t1", trace_id="tr1"
        )
        answer = await s.create(LOCAL, request)
        run = answer["run"]
        assert (run["status"], run["attempt"], run["parent_run_id"]) == ("queued", 1, None)
        assert run["root_run_id"] == run["run_id"]
        assert (run["task_id"], run["trace_id"]) == ("t1", "tr1")
        past = await s.get(LOCAL, GetRun(run_id=run["run_id"], at=answer["cursor"]))
        assert past == answer


@pytest.mark.parametrize(
    "request_body",
    [
        {"entry_id": "greet", "args": {}},
        {"plugin_id": "test", "args": {}},
        {"plugin_id": "test", "entry_id": "greet"},
        {"plugin_id": "test", "entry_id": "greet", "args": []},
        {"plugin_id": "test", "entry_id": "greet", "args": {}, "mode": "other"},
        {"plugin_id": "test", "entry_id": "greet", "args": {}, "unknown": 1},
        {"plugin_id": "", "entry_id": "greet", "args": {}},
        {"plugin_id": "test", "entry_id": "greet", "args": {}, "timeout": 0},
    ],
)
def test_a_request_that_makes_no_sense_is_refused_at_the_door(request_body: Any) -> None:
    """Missing, unknown and ill-typed parts never get inside (R58, R62)."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(request_body, CreateRun)


async def test_bad_arguments_make_no_run(autojump_clock: MockClock) -> None:
    """They are checked against the entry's types before a run exists (R58)."""
    async with service() as s:
        error = await refused("VALIDATION_ERROR", lambda: s.start("nap", args={"seconds": "x"}))
        assert "$.seconds" in error.message
        await refused("VALIDATION_ERROR", lambda: s.start("nap", args={}))
        assert (await s.list(LOCAL, ListRuns()))["runs"] == []


async def test_unknown_plugins_and_entries_make_no_run(autojump_clock: MockClock) -> None:
    """The answer says which entries there are (R70)."""
    async with service() as s:
        error = await refused("ENTRY_NOT_FOUND", lambda: s.start("nowhere"))
        assert "greet" in error.message
        request = CreateRun(plugin_id="nobody", entry_id="x", args={})
        await refused("PLUGIN_NOT_FOUND", lambda: s.create(LOCAL, request))
        assert (await s.list(LOCAL, ListRuns()))["runs"] == []


# Idempotency


async def test_one_key_makes_one_run(autojump_clock: MockClock) -> None:
    """However many ask at once, and later again (R63, R68)."""
    async with service() as s:
        ids: list[str] = []

        async def ask(key: str) -> None:
            run = await s.start("greet", args={"name": key}, idempotency_key=key)
            ids.append(run["run_id"])

        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(ask, f"key-{number % 10}")
        assert len(ids) == 1000
        assert len(set(ids)) == 10
        assert s.node.runs._creation._queues == {}
        again = await s.start("greet", args={"name": "key-3"}, idempotency_key="key-3")
        assert again["run_id"] in ids
        assert (await s.start("greet"))["run_id"] != (await s.start("greet"))["run_id"]


async def test_a_key_stands_for_one_request(autojump_clock: MockClock) -> None:
    """Another entry or other arguments are a conflict that shows both hashes (R64, R65)."""
    async with service() as s:
        first = await s.start("greet", args={"name": "a"}, idempotency_key="k")
        error = await refused(
            "IDEMPOTENCY_CONFLICT",
            lambda: s.start("greet", args={"name": "b"}, idempotency_key="k"),
        )
        assert error.details is not None
        assert error.details["run_id"] == first["run_id"]
        assert error.details["expected"] != error.details["actual"]
        await refused("IDEMPOTENCY_CONFLICT", lambda: s.start("fail", idempotency_key="k"))


async def test_a_key_belongs_to_its_principal(autojump_clock: MockClock) -> None:
    """Keys of different people never meet."""
    async with service() as s:
        request = CreateRun(plugin_id="test", entry_id="greet", args={}, idempotency_key="k")
        mine = await s.create(LOCAL, request)
        theirs = await s.create(Principal("local", "other"), request)
        assert mine["run"]["run_id"] != theirs["run"]["run_id"]


async def test_a_key_is_free_after_its_window_but_not_before_its_run_has_ended(
    autojump_clock: MockClock,
) -> None:
    """A long run keeps its key (R66)."""
    async with service(claim_window=10 * 10**9) as s:
        args = {"seconds": 50}
        first = await s.start("nap", args=args, idempotency_key="k")
        await trio.sleep(20)
        same = await s.start("nap", args=args, idempotency_key="k")
        assert same["run_id"] == first["run_id"]
        await s.finished(first["run_id"])
        new = await s.start("nap", args=args, idempotency_key="k")
        assert new["run_id"] != first["run_id"]


async def test_a_key_survives_a_restart(autojump_clock: MockClock) -> None:
    """The claim is in the log (R32, R67)."""
    store = MemoryStore()
    async with service(store) as s:
        first = await s.start("greet", idempotency_key="k")
    async with service(store) as s:
        again = await s.start("greet", idempotency_key="k")
        assert again["run_id"] == first["run_id"]


# Reading


async def test_an_unknown_run_is_not_found(autojump_clock: MockClock) -> None:
    """By whatever operation (R72, R80)."""
    async with service() as s:
        for call in (
            lambda: s.read("nobody"),
            lambda: s.read("nobody", at=2**62),
            lambda: s.cancel(LOCAL, CancelRun(run_id="nobody")),
            lambda: s.retry(LOCAL, RetryRun(run_id="nobody")),
            lambda: s.answer(LOCAL, AnswerRun(run_id="nobody", question_id="q", answer=1)),
            lambda: s.export(LOCAL, ExportRun(run_id="nobody")),
        ):
            await refused("RUN_NOT_FOUND", call)


async def test_a_run_can_be_read_as_it_was(autojump_clock: MockClock) -> None:
    """By cursor and by instant; before it existed it was not there."""
    async with service() as s:
        before = s.world.host.env.now()
        await trio.sleep(1)
        run = await s.start("nap", args={"seconds": 10})
        await trio.sleep(2)
        during = (await s.get(LOCAL, GetRun(run_id=run["run_id"])))["cursor"]
        instant = s.world.host.env.now()
        end = await s.finished(run["run_id"])
        assert end["status"] == "succeeded"
        assert (await s.read(run["run_id"], at=during))["status"] == "running"
        assert (await s.read(run["run_id"], at=instant))["status"] == "running"
        await refused("RUN_NOT_FOUND", lambda: s.read(run["run_id"], at=before))
        await refused("INVALID_CURSOR", lambda: s.read(run["run_id"], at="rubbish"))


async def test_lists_are_filtered_and_paged(autojump_clock: MockClock) -> None:
    """Newest first, each run once, with the cursor the page is true at (R82)."""
    async with service() as s:
        made = [await s.start("greet", task_id=f"t{n % 2}") for n in range(7)]
        for run in made:
            await s.finished(run["run_id"])
        wanted = [run["run_id"] for run in made if run["task_id"] == "t0"][::-1]
        seen: list[str] = []
        after = None
        while True:
            page = await s.list(LOCAL, ListRuns(task_id="t0", limit=2, after=after))
            seen.extend(run["run_id"] for run in page["runs"])
            after = page["next_after"]
            if after is None:
                break
        assert seen == wanted
        failed = await s.list(LOCAL, ListRuns(status=["failed"]))
        assert failed["runs"] == []


async def test_exports_are_paged_by_item(autojump_clock: MockClock) -> None:
    """In order, each once; null at the end; a foreign id is refused (R31, R83, R85, R86, R87)."""
    async with service() as s:
        run = await s.start("exports")
        run_id = run["run_id"]
        await s.finished(run_id)
        seen: list[str] = []
        after = None
        while True:
            page = await s.export(LOCAL, ExportRun(run_id=run_id, limit=3, after=after))
            seen.extend(item["type"] for item in page["items"])
            after = page["next_after"]
            if after is None:
                break
        assert seen == ["text", "url", "binary_url", "json"]
        for bad in ("rubbish", f"{run_id}.9", f"{run_id}.0", "other.1"):
            request = ExportRun(run_id=run_id, after=bad)
            await refused("INVALID_CURSOR", partial(s.export, LOCAL, request))


# Cancelling, answering, trying again


async def test_cancelling_shows_at_once_and_is_too_late_in_the_end(
    autojump_clock: MockClock,
) -> None:
    """The answer has the request's time and reason; an ended run stays as it is (R74, R78, R79)."""
    async with service() as s:
        run_id = (await s.start("polite"))["run_id"]
        await trio.sleep(1)
        first = (await s.cancel(LOCAL, CancelRun(run_id=run_id, reason="enough")))["run"]
        assert (first["status"], first["cancel_reason"]) == ("cancel_requested", "enough")
        second = (await s.cancel(LOCAL, CancelRun(run_id=run_id, reason="other")))["run"]
        assert second["cancel_requested_at"] == first["cancel_requested_at"]
        end = await s.finished(run_id)
        assert end["status"] == "canceled"
        assert (await s.cancel(LOCAL, CancelRun(run_id=run_id)))["run"] == end


async def test_a_question_is_answered_from_outside(autojump_clock: MockClock) -> None:
    """The record shows what is asked; a wrong id is refused."""
    async with service() as s:
        run_id = (await s.start("question"))["run_id"]
        await trio.sleep(1)
        (question,) = (await s.read(run_id))["questions"]
        answer = AnswerRun(run_id=run_id, question_id=question, answer={"choice": 1})
        await s.answer(LOCAL, answer)
        assert (await s.finished(run_id))["status"] == "succeeded"


async def test_a_retry_is_a_new_run_of_the_same_root(autojump_clock: MockClock) -> None:
    """What was asked is copied, the key is not, and the original stays as it was (R88 to R95)."""
    async with service() as s:
        first = await s.start(
            "fail", args={"code": "X"}, task_id="t", trace_id="tr", idempotency_key="k"
        )
        await refused(
            "RUN_NOT_TERMINAL",
            lambda: s.retry(LOCAL, RetryRun(run_id=first["run_id"])),
        )
        ended = await s.finished(first["run_id"])
        second = (await s.retry(LOCAL, RetryRun(run_id=first["run_id"])))["run"]
        assert second["status"] == "queued"
        assert (second["parent_run_id"], second["root_run_id"]) == (first["run_id"],) * 2
        assert (second["attempt"], second["task_id"], second["trace_id"]) == (2, "t", "tr")
        assert second["idempotency_key"] is None
        await s.finished(second["run_id"])
        third = (await s.retry(LOCAL, RetryRun(run_id=first["run_id"])))["run"]
        assert (third["attempt"], third["parent_run_id"]) == (3, first["run_id"])
        assert await s.read(first["run_id"]) == ended


async def test_fifty_retries_at_once_are_fifty_attempts(autojump_clock: MockClock) -> None:
    """Each gets a number of its own (R94)."""
    async with service() as s:
        run_id = (await s.start("fail"))["run_id"]
        await s.finished(run_id)
        attempts: list[int] = []

        async def retry() -> None:
            attempts.append((await s.retry(LOCAL, RetryRun(run_id=run_id)))["run"]["attempt"])

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(retry)
        assert sorted(attempts) == list(range(2, 52))
