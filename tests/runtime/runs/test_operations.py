from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.errors import Fenced
from perdure.actors.run.commands import Deliver, Finish, RunCommand
from perdure.actors.run.events import ExportAppended, ProgressReported, RunEnded, RunError
from perdure.actors.run.status import Outcome
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.runs.answers import RunAnswer
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import (
    AnswerRun,
    CancelRun,
    CreateRun,
    ExportRun,
    GetRun,
    ListRuns,
    RetryRun,
)
from tests.runtime.service import refused, service

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
        before = s.world.executor.context.env.now()
        await trio.sleep(1)
        run = await s.start("nap", args={"seconds": 10})
        await trio.sleep(2)
        during = (await s.get(LOCAL, GetRun(run_id=run["run_id"])))["cursor"]
        instant = s.world.executor.context.env.now()
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


@pytest.mark.parametrize("limit", [0, -1, 501, 1 << 40])
async def test_a_page_has_a_sensible_size(autojump_clock: MockClock, limit: int) -> None:
    """At most as many items as were asked for; anything else is refused (R84)."""
    async with service() as s:
        run_id = (await s.start("exports"))["run_id"]
        await s.finished(run_id)
        for size in (1, 2, 4):
            page = await s.export(LOCAL, ExportRun(run_id=run_id, limit=size))
            assert len(page["items"]) == size
        for name, more in (("runs.export", {"run_id": run_id}), ("runs.list", {})):
            await refused("VALIDATION_ERROR", partial(s.call, name, {"limit": limit, **more}))


async def test_items_appended_while_paging_are_seen_once(autojump_clock: MockClock) -> None:
    """A page is true at its cursor; the next one goes on (R87)."""
    async with service() as s:
        run_id = (await s.start("slow_exports", args={"n": 20}))["run_id"]
        seen: list[str] = []
        last = None
        while len(seen) < 20:
            page = await s.export(LOCAL, ExportRun(run_id=run_id, limit=3, after=last))
            seen.extend(item["text"] for item in page["items"])
            last = page["items"][-1]["export_item_id"] if page["items"] else last
            await trio.sleep(0.7)
        assert seen == [f"item {number}" for number in range(20)]


async def test_the_past_of_exports_can_be_read(autojump_clock: MockClock) -> None:
    """At an earlier cursor there are only the items of then."""
    async with service() as s:
        run_id = (await s.start("slow_exports", args={"n": 6}))["run_id"]
        await trio.sleep(2.5)
        then = await s.export(LOCAL, ExportRun(run_id=run_id))
        await s.finished(run_id)
        assert 0 < len(then["items"]) < 6
        again = await s.export(LOCAL, ExportRun(run_id=run_id, at=then["cursor"]))
        assert again == then
        assert len((await s.export(LOCAL, ExportRun(run_id=run_id)))["items"]) == 6


async def test_lists_are_filtered_by_time(autojump_clock: MockClock) -> None:
    """From an instant on, and before an instant."""
    async with service() as s:
        made = []
        instants = []
        for _ in range(3):
            instants.append(s.node.env.now())
            made.append((await s.start("greet"))["run_id"])
            await trio.sleep(10)

        async def listed(**where: Any) -> list[str]:
            page = await s.list(LOCAL, ListRuns(**where))
            return [run["run_id"] for run in page["runs"]]

        assert await listed(created_from=instants[1]) == [made[2], made[1]]
        assert await listed(created_until=instants[1]) == [made[0]]
        assert await listed(created_from=instants[1], created_until=instants[2]) == [made[1]]


async def test_a_page_that_is_just_full_is_the_last(autojump_clock: MockClock) -> None:
    """Nobody is sent to an empty page."""
    async with service() as s:
        for _ in range(4):
            await s.start("greet")
        page = await s.list(LOCAL, ListRuns(limit=2))
        assert page["next_after"] is not None
        page = await s.list(LOCAL, ListRuns(limit=2, after=page["next_after"]))
        assert (len(page["runs"]), page["next_after"]) == (2, None)


async def test_updated_at_never_goes_back(autojump_clock: MockClock) -> None:
    """Whatever the clock does while a run goes on (R22)."""
    async with service() as s:
        env = s.node.env
        run_id = (await s.start("slow_exports", args={"n": 10}))["run_id"]
        seen = []
        now = env.now
        for number in range(12):
            if number == 5:
                env.now = lambda: now() - 3_600_000_000_000  # type: ignore[method-assign]
            shown = await s.read(run_id)
            assert isinstance(shown["updated_at"], float)
            seen.append(shown["updated_at"])
            await trio.sleep(1)
        assert seen == sorted(seen)
        assert len(set(seen)) > 3


async def test_a_cancel_that_races_with_the_end_leaves_one_end(autojump_clock: MockClock) -> None:
    """Whoever comes first; the record says what happened, and that a cancel was asked for (R81)."""
    ends: set[tuple[str, bool]] = set()
    wanted = {("canceled", True), ("succeeded", True), ("succeeded", False)}
    async with service() as s:
        for number in range(500):  # the order of tasks is a matter of chance
            if ends == wanted:
                break
            run_id = (await s.start("steps", args={"n": 1}))["run_id"]
            await trio.sleep(3 * number % 40 * 0.001)
            asked = (await s.cancel(LOCAL, CancelRun(run_id=run_id)))["run"]
            end = await s.finished(run_id)
            assert len(s.world.events(run_id, RunEnded)) == 1
            was_over = asked["finished_at"] is not None and not asked["cancel_requested"]
            assert end["cancel_requested"] is not was_over
            ends.add((end["status"], end["cancel_requested"]))
    assert ends == wanted


# Ending


async def test_a_run_that_has_ended_never_changes(autojump_clock: MockClock) -> None:
    """Whatever comes late, the record and the log stay as they are (R11, R28, R54, R79)."""
    async with service() as s:
        run_id = (await s.start("exports", args={"final": True}))["run_id"]
        end = await s.finished(run_id)
        assert len(end["result_refs"]) == 1
        head = await s.cursor()
        item = ExportAppended(
            number=5, type="text", text="late", fingerprint="f", occurrence=1, at=1
        )
        late = RunError(code="LATE", message="late")
        commands: list[RunCommand] = [
            Deliver(epoch=1, outputs=(item,), at=1),
            Deliver(epoch=1, outputs=(ProgressReported(progress=1, message=None, at=1),), at=1),
            Finish(epoch=1, outcome=Outcome.TIMEOUT, error=late, at=1),
            Finish(epoch=1, outcome=Outcome.SUCCEEDED, at=1),
        ]
        for command in commands:
            with pytest.raises(Fenced):
                await runs_of(s.node).executor.ask(run_id, command)
        await s.cancel(LOCAL, CancelRun(run_id=run_id, force=True))
        await trio.sleep(1000)
        assert await s.read(run_id) == end
        assert await s.cursor() == head


async def test_a_caller_may_wait_for_the_end(autojump_clock: MockClock) -> None:
    """With mode sync the answer has the end and its result; not longer than is allowed."""
    async with service(sync_wait=30.0) as s:
        nap = CreateRun(plugin_id="test", entry_id="nap", args={"seconds": 10}, mode="sync")
        answer = await s.create(LOCAL, nap)
        assert answer["run"]["status"] == "succeeded"
        assert [item.get("json") for item in answer["result"]] == ["rested"]
        refs = [{"export_item_id": i["export_item_id"], "type": "json"} for i in answer["result"]]
        assert refs == answer["run"]["result_refs"]
        nap.args = {"seconds": 90}
        started = trio.current_time()
        answer = await s.create(LOCAL, nap)
        assert 30 <= trio.current_time() - started < 31
        assert answer["run"]["status"] == "running"
        assert "result" not in answer
        assert (await s.finished(answer["run"]["run_id"]))["status"] == "succeeded"


@pytest.mark.parametrize(
    ("asked", "longest", "given"), [(None, None, 100), (7, None, 7), (7, 5, 5), (None, 5, 5)]
)
async def test_a_timeout_is_the_callers_or_the_entrys_up_to_what_is_allowed(
    autojump_clock: MockClock, asked: float | None, longest: float | None, given: float
) -> None:
    """The deadline counts from the start."""
    async with service(timeout=longest) as s:
        run = await s.start("nap", args={"seconds": 1000}, timeout=asked)
        end = await s.finished(run["run_id"])
        assert end["status"] == "timeout"
        assert end["started_at"] is not None
        assert end["deadline"] is not None
        assert end["deadline"] - end["started_at"] == pytest.approx(given)


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
    """The record shows what is asked; an answer that fits into no record is refused."""
    async with service() as s:
        run_id = (await s.start("question"))["run_id"]
        await trio.sleep(1)
        (question,) = (await s.read(run_id))["questions"]
        huge = AnswerRun(run_id=run_id, question_id=question, answer="x" * 1_048_576)
        await refused("PAYLOAD_TOO_LARGE", lambda: s.answer(LOCAL, huge))
        answer = AnswerRun(run_id=run_id, question_id=question, answer={"choice": 1})
        await s.answer(LOCAL, answer)
        assert (await s.finished(run_id))["status"] == "succeeded"


async def test_a_retry_is_a_new_run_of_the_same_root(autojump_clock: MockClock) -> None:
    """What was asked is copied, the key is not, and the original stays as it was.

    R88, R89, R90, R91, R92, R93, R95.
    """
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
        before, after = [(await s.world.state(run["run_id"])).created for run in (first, second)]
        assert (after.plugin_id, after.entry_id, after.args) == ("test", "fail", {"code": "X"})
        assert (before.plugin_id, before.entry_id, before.args) == ("test", "fail", {"code": "X"})
        await s.finished(second["run_id"])
        third = (await s.retry(LOCAL, RetryRun(run_id=first["run_id"])))["run"]
        assert (third["attempt"], third["parent_run_id"]) == (3, first["run_id"])
        of_a_retry = (await s.retry(LOCAL, RetryRun(run_id=second["run_id"])))["run"]
        assert (of_a_retry["root_run_id"], of_a_retry["attempt"]) == (first["run_id"], 4)
        assert of_a_retry["parent_run_id"] == second["run_id"]
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


async def test_a_thousand_creates_cancels_and_retries_restart_no_actor(
    autojump_clock: MockClock,
) -> None:
    """With nobody let go each run's actor is started once, however it is asked."""
    async with service(idle=1_000_000) as s:
        actors = runs_of(s.node).executor.runs

        async def use() -> None:
            run_id = (await s.start("greet"))["run_id"]
            await s.cancel(LOCAL, CancelRun(run_id=run_id))
            await s.finished(run_id)
            again = (await s.retry(LOCAL, RetryRun(run_id=run_id)))["run"]["run_id"]
            await s.cancel(LOCAL, CancelRun(run_id=again))
            await s.finished(again)

        for _ in range(10):
            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(use)
        assert (actors.started, actors.live) == (2000, 2000)


async def test_whoever_waits_is_answered_when_the_host_lets_go(autojump_clock: MockClock) -> None:
    """The run goes on at the next start: its id is what the caller needs to find it there."""
    nap = CreateRun(
        plugin_id="test", entry_id="nap", args={"seconds": 20}, mode="sync", idempotency_key="n"
    )
    answers: list[RunAnswer] = []
    async with service() as s:

        async def wait() -> None:
            answers.append(await s.create(LOCAL, nap))

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.sleep(1)
                runs_of(s.node).executor.drain()
            await wait()  # also whoever asks again after that
    for answer in answers:
        assert answer["run"]["status"] == "running"
        assert "result" not in answer
