"""Canceling, retrying and answering over HTTP."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from perdure.actors.run.events import RunEnded
from perdure.runtime.plugins.run_context import RunContext
from tests.runtime.execution.test_current_run import PLUGINS, Scripted
from tests.runtime.http.client import client, error_of


async def test_a_waiting_run_is_canceled_at_once(autojump_clock: MockClock) -> None:
    """R73: the answer to the cancel of a queued run shows it canceled."""
    async with client(runs=1) as asking:
        await asking.started("deaf")
        waiting = await asking.started("greet")
        response = await asking.post(f"/runs/{waiting}/cancel")
        assert (response.status_code, response.json()["status"]) == (200, "canceled")


async def test_a_running_run_is_asked_to_end(autojump_clock: MockClock) -> None:
    """R74 R75 R76 R78: visible at once, with its reason; once is enough; it ends as canceled."""
    async with client() as asking:
        run_id = await asking.started("polite")
        await trio.sleep(1)
        first = (await asking.post(f"/runs/{run_id}/cancel", {"reason": "enough"})).json()
        assert first["status"] == "cancel_requested"
        assert (first["cancel_requested"], first["cancel_reason"]) == (True, "enough")
        second = (await asking.post(f"/runs/{run_id}/cancel", {})).json()
        assert second["cancel_requested_at"] == first["cancel_requested_at"] is not None
        record = await asking.ended(run_id)
        assert (record["status"], record["error"]["code"]) == ("canceled", "CANCELED")


async def test_a_cancel_that_races_with_the_end_leaves_one_end(autojump_clock: MockClock) -> None:
    """R81: whenever it comes; the record says what happened, and that a cancel was asked for."""

    async def body(ctx: RunContext) -> None:
        for _ in range(10):
            await trio.sleep(0.002)
            ctx.run.check_cancelled()
        await trio.sleep(0.01)  # it looks no more

    Scripted.body = staticmethod(body)
    async with client(plugins=PLUGINS) as asking:
        ends: set[tuple[str, bool, bool]] = set()
        wanted = {
            ("canceled", True, False),  # before it began
            ("canceled", True, True),
            ("succeeded", True, True),  # too late for the entry to hear
            ("succeeded", False, True),  # too late altogether
        }
        for number in range(500):  # the order of tasks is a matter of chance
            if ends == wanted:
                break
            run_id = await asking.started("go")
            await trio.sleep(2 * number % 100 * 0.001)
            asked = (await asking.post(f"/runs/{run_id}/cancel")).json()
            end = await asking.ended(run_id)
            assert len(asking.behind.world.events(run_id, RunEnded)) == 1
            assert end["cancel_requested"] is asked["cancel_requested"]
            assert (end["cancel_requested_at"] is None) is not end["cancel_requested"]
            assert (end["error"] is None) is (end["status"] == "succeeded")
            ends.add((end["status"], end["cancel_requested"], end["started_at"] is not None))
        assert ends == wanted


async def test_what_has_ended_stays_as_it_is(autojump_clock: MockClock) -> None:
    """R79: the cancel of an ended run is 200 with the record unchanged."""
    async with client() as asking:
        run_id = await asking.started("greet")
        before = await asking.ended(run_id)
        response = await asking.post(f"/runs/{run_id}/cancel", {"reason": "late"})
        assert (response.status_code, response.json()) == (200, before)


async def test_an_entry_that_does_not_obey_is_ended(autojump_clock: MockClock) -> None:
    """R77: after the grace period the host ends it; with force at once."""
    async with client(cancel_grace=5) as asking:
        slow, fast = await asking.started("deaf"), await asking.started("deaf")
        await trio.sleep(1)
        begun = trio.current_time()
        await asking.post(f"/runs/{fast}/cancel", {"force": True})
        await asking.ended(fast)
        assert trio.current_time() - begun < 1
        await asking.post(f"/runs/{slow}/cancel")
        assert (await asking.ended(slow))["status"] == "canceled"


async def test_what_has_ended_is_run_again(autojump_clock: MockClock) -> None:
    """R88 R89 R90 R91 R92 R95: a new run, the next attempt, and the old record untouched."""
    async with client() as asking:
        sent = {"task_id": "t", "trace_id": "c", "idempotency_key": "k"}
        first = await asking.started("greet", args={"name": "me"}, **sent)
        before = await asking.ended(first)
        response = await asking.post(f"/runs/{first}/retry")
        again = response.json()
        assert (response.status_code, again["status"]) == (202, "queued")
        assert response.headers["location"] == f"/runs/{again['run_id']}" != f"/runs/{first}"
        assert again == {
            **again,
            "parent_run_id": first,
            "root_run_id": first,
            "attempt": 2,
            "plugin_id": "test",
            "entry_id": "greet",
            "task_id": "t",
            "trace_id": "c",
            "idempotency_key": None,
        }
        await asking.ended(again["run_id"])
        items = (await asking.get(f"/runs/{again['run_id']}/export")).json()["items"]
        assert [item["json"] for item in items] == ["hello me"]
        assert await asking.record(first) == before
        third = (await asking.post(f"/runs/{again['run_id']}/retry")).json()
        assert third["parent_run_id"] == again["run_id"]
        assert (third["root_run_id"], third["attempt"]) == (first, 3)


async def test_what_has_not_ended_is_not_run_again(autojump_clock: MockClock) -> None:
    """R93 R94: 409 RUN_NOT_TERMINAL; two retries of one run have numbers of their own."""
    async with client() as asking:
        run_id = await asking.started("nap", args={"seconds": 5})
        error = error_of(await asking.post(f"/runs/{run_id}/retry", {}), 409)
        assert error["code"] == "RUN_NOT_TERMINAL"
        await asking.ended(run_id)
        tries = [(await asking.post(f"/runs/{run_id}/retry")).json() for _ in range(2)]
        assert [each["attempt"] for each in tries] == [2, 3]


async def test_a_question_is_answered(autojump_clock: MockClock) -> None:
    """Once; the same again is the same, another answer a conflict, no question a 404."""
    async with client() as asking:
        run_id = await asking.started("question")
        await trio.sleep(1)
        record = await asking.record(run_id)
        (question,) = record["questions"]
        assert (record["stage"], record["message"]) == ("input_required", "which?")
        page = (await asking.get(f"/runs/{run_id}/questions")).json()
        (told,) = page["questions"]
        assert (told["question_id"], told["question"]) == (question, {"text": "which?"})
        assert record["started_at"] <= told["asked_at"] <= record["updated_at"]
        assert (page["more"], page["cursor"]) == (False, record["cursor"])
        wrong = {"question_id": "none", "answer": 1}
        assert error_of(await asking.post(f"/runs/{run_id}/answers", wrong), 404)["code"] == (
            "QUESTION_NOT_FOUND"
        )
        answer = {"question_id": question, "answer": {"a": 1}}
        response = await asking.post(f"/runs/{run_id}/answers", answer)
        assert (response.status_code, response.json()["questions"]) == (200, [])
        assert (await asking.get(f"/runs/{run_id}/questions")).json()["questions"] == []
        then = await asking.get(f"/runs/{run_id}/questions", params={"at": page["cursor"]})
        assert then.json() == page
        await asking.ended(run_id)
        items = (await asking.get(f"/runs/{run_id}/export")).json()["items"]
        assert [item["json"] for item in items] == [{"a": 1}]


async def test_a_body_has_moments_as_an_address_has_them(autojump_clock: MockClock) -> None:
    """Seconds are seconds: what was created later than all there is matches nothing."""
    async with client() as asking:
        run_id = await asking.started("greet")
        created = (await asking.ended(run_id))["created_at"]
        for moment, count in [
            (int(created), 1),
            (created, 1),
            ("2020-01-01", 1),
            (int(created) + 60, 0),
            (str(created + 60), 0),
            ("2100-01-01T00:00:00Z", 0),
        ]:
            asked = {"status": ["succeeded"], "created_from": moment}
            answer = (await asking.post("/runs/retry", asked)).json()
            assert answer["count"] == count, moment
            listed = await asking.get("/runs", params={"created_from": str(moment)})
            assert len(listed.json()["runs"]) == count, moment


async def test_the_id_of_a_run_is_in_one_place(autojump_clock: MockClock) -> None:
    """A body cannot name another run than the address."""
    async with client() as asking:
        run_id = await asking.started("deaf")
        response = await asking.post(f"/runs/{run_id}/cancel", {"run_id": "other"})
        assert "address" in error_of(response, 422)["message"]
