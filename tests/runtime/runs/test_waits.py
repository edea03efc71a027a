"""Waiting for runs: for their end, or for whatever happens to them next."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.runtime.kernel.principal import LOCAL, Permission, Principal
from perdure.runtime.runs.part import runs_of
from tests.runtime.service import Service, refused, service


async def waited(s: Service, run_id: str, **more: Any) -> dict[str, Any]:
    """Wait for a run, and give what was answered."""
    return await s.call("runs.wait", {"run_id": run_id, **more})  # type: ignore[no-any-return]


async def test_a_wait_ends_with_the_run(autojump_clock: MockClock) -> None:
    """It answers with the record as it is read then, and with nothing that the record has not."""
    async with service() as s:
        run_id = (await s.start("nap", args={"seconds": 10}))["run_id"]
        begun = trio.current_time()
        answer = await waited(s, run_id)
        assert 10 <= trio.current_time() - begun < 11
        assert answer["run"]["status"] == "succeeded"
        assert answer == await s.call("runs.get", {"run_id": run_id})


async def test_a_run_that_has_ended_is_not_waited_for(autojump_clock: MockClock) -> None:
    """Also after the cursor of its end, and when its actor is gone: nothing is to come."""
    async with service() as s:
        run_id = (await s.start("greet"))["run_id"]
        end = await waited(s, run_id)
        s.world.executor.runs.let_go()
        begun = trio.current_time()
        assert await waited(s, run_id) == end
        assert await waited(s, run_id, after=end["cursor"]) == end
        assert trio.current_time() - begun < 1


async def test_a_wait_whose_time_is_over_answers_with_a_run_that_goes_on(
    autojump_clock: MockClock,
) -> None:
    """The record simply has not ended; without a timeout it lasts as long as a wait may last."""
    async with service(sync_wait=5.0) as s:
        run_id = (await s.start("nap", args={"seconds": 50}))["run_id"]
        for more, seconds in (({"timeout": 2}, 2), ({"timeout": 5}, 5), ({}, 5)):
            begun = trio.current_time()
            answer = await waited(s, run_id, **more)
            assert answer["run"]["status"] == "running"
            assert seconds <= round(trio.current_time() - begun, 6) < seconds + 1


async def test_a_wait_after_a_cursor_ends_with_the_next_change(autojump_clock: MockClock) -> None:
    """Each answer leads on to the next: whoever goes on from there misses no change."""
    async with service() as s:
        run_id = (await s.start("stages"))["run_id"]
        seen: list[dict[str, Any]] = []
        after = None
        while not seen or seen[-1]["status"] != "succeeded":
            answer = await waited(s, run_id, **({"after": after} if after else {"timeout": 0.1}))
            assert answer["cursor"] != after
            after = answer["cursor"]
            seen.append(answer["run"])
        assert [(run["stage"], run["progress"]) for run in seen] == [
            ("loading", None),
            ("loading", 0.4),
            ("loading", 0.4),
        ]


async def test_a_wait_after_a_cursor_that_is_behind_ends_at_once(autojump_clock: MockClock) -> None:
    """What has changed since is the answer."""
    async with service() as s:
        before = await s.cursor()
        run_id = (await s.start("nap", args={"seconds": 50}))["run_id"]
        begun = trio.current_time()
        assert (await waited(s, run_id, after=before))["run"]["status"] in {"queued", "running"}
        assert trio.current_time() - begun < 1


async def test_whoever_waits_is_answered_when_the_host_drains(autojump_clock: MockClock) -> None:
    """With the run as it is; later waits end at once too."""
    async with service() as s, trio.open_nursery() as nursery:
        run_id = (await s.start("nap", args={"seconds": 50}))["run_id"]
        answers: list[dict[str, Any]] = []

        async def wait(**more: Any) -> None:
            answers.append(await waited(s, run_id, **more))

        await trio.sleep(1)
        nursery.start_soon(wait)
        nursery.start_soon(partial(wait, after=await s.cursor()))
        await trio.sleep(1)
        begun = trio.current_time()
        runs_of(s.node).drain()
        await trio.sleep(1)
        await wait()
        assert [answer["run"]["status"] for answer in answers] == ["running"] * 3
        assert trio.current_time() - begun < 2


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"timeout": 30.5}, "VALIDATION_ERROR"),
        ({"timeout": -1}, "VALIDATION_ERROR"),
        ({"timeout": "soon"}, "VALIDATION_ERROR"),
        ({"timeout": float("nan")}, "VALIDATION_ERROR"),
        ({"after": "rubbish"}, "INVALID_CURSOR"),
        ({"run_id": "nobody"}, "RUN_NOT_FOUND"),
    ],
)
async def test_a_wait_that_makes_no_sense_is_refused(
    autojump_clock: MockClock, args: dict[str, Any], code: str
) -> None:
    """At once, and with the bound where it is too long."""
    async with service() as s:
        run_id = (await s.start("nap", args={"seconds": 50}))["run_id"]
        begun = trio.current_time()
        error = await refused(code, lambda: waited(s, **{"run_id": run_id, **args}))
        assert trio.current_time() - begun < 1
        if args.get("timeout") == 30.5:
            assert error.details is not None
            assert error.details["limit"] == 30.0
            assert [each["path"] for each in error.details["errors"]] == ["timeout"]


async def test_nobody_waits_for_what_is_not_theirs(autojump_clock: MockClock) -> None:
    """A run of another tenant does not exist, and a wait needs no more than to read."""
    async with service() as s:
        run_id = (await s.start("nap", args={"seconds": 5}))["run_id"]
        stranger = Principal("elsewhere", LOCAL.user, frozenset({Permission.READ}))
        asked = {"run_id": run_id}
        await refused("RUN_NOT_FOUND", lambda: s.call("runs.wait", asked, stranger))
        reader = Principal(LOCAL.tenant, "reader", frozenset({Permission.READ}))
        answer = await s.call("runs.wait", asked, reader)
        assert answer["run"]["status"] == "succeeded"


async def test_many_wait_for_one_run_and_nothing_is_left_of_them(autojump_clock: MockClock) -> None:
    """A wait that is given up is forgotten; the others are answered."""
    async with service() as s:
        run_id = (await s.start("nap", args={"seconds": 10}))["run_id"]
        answers: list[dict[str, Any]] = []

        async def wait(patience: float) -> None:
            with trio.move_on_after(patience):
                answers.append(await waited(s, run_id))

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(wait, 5 if number % 2 else 20)
        assert len(answers) == 50
        assert not s.world.executor._ends._awaited
