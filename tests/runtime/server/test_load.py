"""Load over the socket: nothing is lost, whatever is asked at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from perdure.runtime.runs.part import runs_of
from tests.runtime.http.sse import Event, Parser
from tests.runtime.server.here import Here, server_here
from tests.runtime.server.process import server
from tests.runtime.server.steady import Steady
from tools.soak_record import FIGURES

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
async def test_two_hundred_short_runs_a_second_lose_no_terminal(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """For half a minute, on a server of its own, at that rate; latency is a figure (R125)."""
    with server(tmp_path / "data") as running:
        steady = Steady(running.url)
        await steady.create(rate=200, seconds=30)
        request.node.user_properties.append((FIGURES, steady.stated(200)))
        assert len(set(steady.run_ids)) == 6000
        assert steady.seconds < 33, steady.stated(200)  # the last ones are due after 30
        with trio.fail_after(120):
            while running.post("/runs/retry", {"status": ["succeeded"]})["count"] < 6000:  # noqa: ASYNC110
                await trio.sleep(0.2)


class MixedLoad:
    """Runs that put things out, end in every way, and are followed from everywhere."""

    def __init__(self, here: Here) -> None:
        """Nothing is asked for so far."""
        self.here = here
        self.records: dict[str, dict[str, Any]] = {}  # as they were when they had just ended
        self.listed = 0

    async def one(self, number: int) -> None:
        """Run something to its end, and ask too late for another one."""
        entry = ("exports", "fail", "polite", "steps")[number % 4]
        run_id = await self.here.create(entry, task_id=f"t{number % 3}")
        if entry == "polite":
            await self.here.http.post(f"/runs/{run_id}/cancel")
        await runs_of(self.here.node).executor.end_of(run_id)
        self.records[run_id] = record = await self.here.record(run_id)
        late = await self.here.http.post(f"/runs/{run_id}/cancel", json={"reason": "late"})
        assert late.json() == record

    async def list_at_once(self, cursor: str) -> None:
        """List the items of a run whenever one is told of: it is there."""
        parser = Parser()
        address = f"/events/export?after={cursor}"
        async with self.here.http.stream("GET", address, timeout=None) as response:
            async for data in response.aiter_raw():
                for event in parser.feed(data):
                    page = await self.here.http.get(f"/runs/{event.data['run_id']}/export")
                    items = page.json()["items"]
                    assert event.data in items
                    self.listed += 1

    async def exports(self) -> list[str]:
        """What all runs have put out, as each of them lists it."""
        found: list[str] = []
        for run_id, record in self.records.items():
            assert await self.here.record(run_id) == record
            page = (await self.here.http.get(f"/runs/{run_id}/export?limit=500")).json()
            ids = [item["export_item_id"] for item in page["items"]]
            assert ids == [f"{run_id}.{number}" for number in range(1, len(ids) + 1)]
            named = {each["export_item_id"] for each in record["result_refs"]}
            assert named <= set(ids)
            found += ids
        return found


async def mixed_load(path: Path, runs: int, followers: int, patience: float) -> None:
    """Put a server under load, and compare what followers saw with what there is."""
    async with server_here(path) as here, trio.open_nursery() as nursery:
        load = MixedLoad(here)
        cursor = (await here.http.get("/runs?limit=1")).json()["cursor"]
        streams: list[list[Event]] = [[] for _ in range(followers)]
        for number, seen in enumerate(streams):
            channel = ("runs", "export", "log")[number % 3]
            nursery.start_soon(here.events, f"/events/{channel}?after={cursor}", seen)
        nursery.start_soon(load.list_at_once, cursor)
        with trio.fail_after(patience):
            async with trio.open_nursery() as work:
                for number in range(runs):
                    work.start_soon(load.one, number)
            exports = await load.exports()
            head = (await here.node.log.head()).position
            while not all_is_there(streams, head, runs) or load.listed < len(exports):  # noqa: ASYNC110
                await trio.sleep(0.05)
        for seen in streams[0::3]:
            changes = [event.data for event in seen]
            terminal = [each["run_id"] for each in changes if each["status"] in ENDED]
            assert sorted(terminal) == sorted(load.records)
            last = {each["run_id"]: each["progress"] for each in changes}
            assert last == {key: each["progress"] for key, each in load.records.items()}
        for seen in streams[1::3]:
            assert sorted(event.data["export_item_id"] for event in seen) == sorted(exports)
        for seen in streams[2::3]:
            positions = [event.data["position"] for event in seen]
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


@pytest.mark.parametrize(
    ("runs", "followers"), [(40, 6), pytest.param(300, 30, marks=pytest.mark.soak)]
)
async def test_mixed_load_keeps_the_promises(tmp_path: Path, runs: int, followers: int) -> None:
    """What has ended stays as it is (R11), the last progress comes (R42), items are there (R49).

    And every follower sees every end and every item, once (R126).
    """
    await mixed_load(tmp_path, runs=runs, followers=followers, patience=60 + runs)
