"""Load over the socket: nothing is lost, whatever is asked at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from tests.http.sse import Event
from tests.serving.here import Here, server_here

ENDED = {"succeeded", "failed", "canceled", "timeout"}


async def short_runs(here: Here, rate: int, seconds: float) -> tuple[list[str], list[float]]:
    """Create so many short runs a second; give their ids and how long each creation took."""
    run_ids: list[str] = []
    took: list[float] = []

    async def create() -> None:
        begin = trio.current_time()
        run_ids.append(await here.create("greet"))
        took.append(trio.current_time() - begin)

    begin = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(round(rate * seconds)):
            await trio.sleep_until(begin + number / rate)
            nursery.start_soon(create)
    return run_ids, sorted(took)


async def no_terminal_is_lost(path: Path, rate: int, seconds: float) -> None:
    """Create runs at a rate, and follow all of them to their end."""
    async with server_here(path) as here, trio.open_nursery() as nursery:
        seen: list[Event] = []
        cursor = (await here.http.get("/runs?limit=1")).json()["cursor"]
        nursery.start_soon(here.events, f"/events/runs?after={cursor}", seen)
        run_ids, took = await short_runs(here, rate, seconds)
        assert len(set(run_ids)) == round(rate * seconds)

        def ended() -> list[str]:
            changes = [event.data for event in seen if event.kind == "run"]
            return [change["run_id"] for change in changes if change["status"] in ENDED]

        with trio.fail_after(60):
            while len(ended()) < len(run_ids):  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.05)
        assert sorted(ended()) == sorted(run_ids)
        counted = await here.http.post("/runs/retry", json={"status": ["succeeded"]})
        assert counted.json()["count"] == len(run_ids)
        p99 = took[int(len(took) * 0.99)]
        print(f"\n{len(run_ids)} runs at {rate}/s: creation p99 {p99 * 1000:.1f} ms")  # noqa: T201
        nursery.cancel_scope.cancel()


async def test_short_runs_at_a_rate_lose_no_terminal(tmp_path: Path) -> None:
    """Each is followed to its one end (R125)."""
    await no_terminal_is_lost(tmp_path, rate=60, seconds=3)


@pytest.mark.soak
async def test_two_hundred_short_runs_a_second_lose_no_terminal(tmp_path: Path) -> None:
    """For half a minute; the latency of creation is stated (R125)."""
    await no_terminal_is_lost(tmp_path, rate=200, seconds=30)


async def mixed_load(path: Path, runs: int, followers: int, patience: float = 60) -> None:
    """Runs that put things out, end in every way, and are followed from everywhere."""
    async with server_here(path) as here, trio.open_nursery() as nursery:
        cursor = (await here.http.get("/runs?limit=1")).json()["cursor"]
        streams: list[list[Event]] = [[] for _ in range(followers)]
        for number, seen in enumerate(streams):
            channel = ("runs", "export", "log")[number % 3]
            nursery.start_soon(here.events, f"/events/{channel}?after={cursor}", seen)
        run_ids: list[str] = []

        async def one(number: int) -> None:
            entry = ("exports", "fail", "polite", "steps")[number % 4]
            run_id = await here.create(entry, task_id=f"t{number % 3}")
            run_ids.append(run_id)
            if entry == "polite":
                await here.http.post(f"/runs/{run_id}/cancel")
            await here.node.host.end_of(run_id)

        with trio.fail_after(patience):
            async with trio.open_nursery() as load:
                for number in range(runs):
                    load.start_soon(one, number)
            head = (await here.node.host.log.head()).position
            while not all_is_there(streams, head, len(run_ids)):  # noqa: ASYNC110
                await trio.sleep(0.05)
        exports = await exports_of(here, run_ids)
        for number, seen in enumerate(streams):
            told = [event.data for event in seen]
            if number % 3 == 0:
                terminal = [each["run_id"] for each in told if each["status"] in ENDED]
                assert sorted(terminal) == sorted(run_ids)
            elif number % 3 == 1:
                assert sorted(each["export_item_id"] for each in told) == sorted(exports)
            else:
                positions = [each["position"] for each in told]
                assert positions == list(range(positions[0], head + 1))
        nursery.cancel_scope.cancel()


def all_is_there(streams: list[list[Event]], head: int, runs: int) -> bool:
    """Whether every stream has come to the head."""
    for number, seen in enumerate(streams):
        told = [event.data for event in seen]
        if number % 3 == 0 and sum(each["status"] in ENDED for each in told) < runs:
            return False
        if number % 3 == 2 and (not told or told[-1]["position"] < head):
            return False
    return True


async def exports_of(here: Here, run_ids: list[str]) -> list[str]:
    """What runs have put out, as each of them lists it; and each has one end and keeps it."""
    found: list[str] = []
    for run_id in run_ids:
        record = await here.record(run_id)
        assert record["status"] in ENDED
        page: Any = (await here.http.get(f"/runs/{run_id}/export?limit=500")).json()
        ids = [item["export_item_id"] for item in page["items"]]
        assert ids == [f"{run_id}.{number}" for number in range(1, len(ids) + 1)]
        named = {each["export_item_id"] for each in record["result_refs"]}
        assert named <= set(ids)
        found += ids
    return found


async def test_mixed_load_keeps_the_promises(tmp_path: Path) -> None:
    """One end for each run, exports in order, every follower sees all (R11, R42, R49, R126)."""
    await mixed_load(tmp_path, runs=40, followers=6)


@pytest.mark.soak
async def test_more_mixed_load_keeps_the_promises(tmp_path: Path) -> None:
    """The same, with more of everything (R126)."""
    await mixed_load(tmp_path, runs=300, followers=30, patience=300)
