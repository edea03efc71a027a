"""A server whose disk is full: it refuses, it is read, it starts, it ends, and it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from perdure.runtime.features import FEATURES
from perdure.runtime.kernel.completion import completed
from perdure.runtime.kernel.data_directory import DataDir
from perdure.runtime.kernel.log_reader import open_reader
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.runs.part import runs_of
from tests.runtime.server.here import Here, server_here
from tests.runtime.server.small_disk import SmallDisk, small_disk

PATIENCE = 20.0  # seconds that anything here may take


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    """A disk with room."""
    with small_disk(tmp_path / "disk", monkeypatch) as disk:
        yield disk


async def readiness(here: Here, status: int) -> dict[str, Any]:
    """Wait until the server says whether it is ready; give what it says."""
    with trio.fail_after(PATIENCE):
        while (said := await here.http.get("/readyz")).status_code != status:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.05)
    return said.json()  # type: ignore[no-any-return]


async def ask_for_new_work(here: Here) -> httpx.Response:
    """Ask for a run that needs more than a spare page."""
    body = {"plugin_id": "test", "entry_id": "greet", "args": {"name": "x" * 50_000}}
    return await here.http.post("/runs", json=body)


async def all_is_read(here: Here, run_ids: set[str]) -> None:
    """Read everything there is of some runs."""
    with trio.fail_after(PATIENCE):
        for run_id in run_ids:
            for path in ("", "/export", "/logs", "/history"):
                assert (await here.http.get(f"/runs/{run_id}{path}")).status_code == 200
        for path in ("/runs?limit=500", "/plugins", "/metrics", "/capabilities", "/healthz"):
            assert (await here.http.get(path)).status_code == 200


async def filled(here: Here, disk: SmallDisk) -> tuple[str, str]:
    """Let the disk become full while one run asks and one works; give both."""
    asking = await here.create("question")
    working = await here.create("slow_exports", args={"n": 1000})
    while not (await here.record(asking))["questions"]:  # noqa: ASYNC110 - nobody tells
        await trio.sleep(0.01)
    disk.fill()
    await readiness(here, 503)
    return asking, working


async def test_what_cannot_be_written_is_refused_and_all_can_be_read(
    disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits without an answer, the log says why, and later everything goes on."""
    async with server_here(disk.data) as here:
        asking, working = await filled(here, disk)
        (question,) = (await here.record(asking))["questions"]
        await all_is_read(here, {asking, working})
        answer = {"question_id": question, "answer": 1}
        with trio.fail_after(PATIENCE):
            for address, body in (
                (f"/runs/{asking}/cancel", {}),
                (f"/runs/{working}/cancel", {}),
                (f"/runs/{asking}/answers", answer),
            ):
                refused = await here.http.post(address, json=body)
                assert refused.status_code == 503
                assert "disk is full" in refused.json()["error"]["message"]
        assert "disk is full" in (await readiness(here, 503))["why"]
        assert [r.message for r in caplog.records if "nothing can be written" in r.message]
        disk.free()
        await readiness(here, 200)
        with trio.fail_after(PATIENCE):
            await here.http.post(f"/runs/{asking}/answers", json=answer)
            end = await runs_of(here.node).executor.end_of(asking)
        assert end.state.status.value == "succeeded"


async def test_a_server_with_a_full_disk_goes_down(disk: SmallDisk) -> None:
    """What waits for room is given up: it was never acknowledged. The next start goes on."""
    with trio.fail_after(60):
        async with server_here(disk.data, drain_grace=0.1, cancel_grace=0.1) as here:
            _, working = await filled(here, disk)
            here.server.stop()
            await here.ended.wait()
    disk.free()
    async with server_here(disk.data) as here:
        assert (await here.record(working))["status"] == "running"


async def test_a_refusal_shows_in_readiness_until_there_is_room(disk: SmallDisk) -> None:
    """Also if no accepted work waits: the server tries by itself, and nobody has to write."""
    async with server_here(disk.data) as here:
        disk.fill()
        with trio.fail_after(PATIENCE):
            while (await ask_for_new_work(here)).status_code != 503:
                await trio.lowlevel.checkpoint()
        assert here.node.log.writer.queued == (0, 0)
        for _ in range(3):
            assert "disk is full" in (await readiness(here, 503))["why"]
            await trio.sleep(0.6)  # more than one probe
        disk.free()
        await readiness(here, 200)
        assert (await ask_for_new_work(here)).status_code == 202


async def test_a_server_starts_on_a_full_disk(disk: SmallDisk) -> None:
    """It says so and can be read; when there is room it goes on, and commands find it."""
    async with stopped_server(disk.data) as here:
        known = {await here.create("greet", mode="sync") for _ in range(3)}
        asking = await here.create("question")
    disk.fill()
    async with server_here(disk.data) as here:
        assert "disk is full" in (await readiness(here, 503))["why"]
        await all_is_read(here, {*known, asking})
        while (await ask_for_new_work(here)).status_code != 503:  # what room there was is used
            await trio.lowlevel.checkpoint()
        disk.free()
        await readiness(here, 200)
        assert (await here.http.get("/readyz")).status_code == 200
        with trio.fail_after(PATIENCE):
            while not (disk.data / "server.json").exists():  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.05)
            while (await here.record(asking))["status"] != "running":  # noqa: ASYNC110
                await trio.sleep(0.05)


async def test_a_full_disk_is_read_without_a_server(disk: SmallDisk) -> None:
    """No file has to be made beside the log."""
    async with stopped_server(disk.data) as here:
        run_id = await here.create("greet", mode="sync")
    disk.fill()
    with open_reader(DataDir(disk.data), FEATURES) as reader:
        page = completed(reader.operations.call(LOCAL, "runs.list", {}))
        assert [run["run_id"] for run in page["runs"]] == [run_id]


@pytest.mark.parametrize("cycles", [3, pytest.param(100, marks=pytest.mark.soak)])
async def test_a_disk_that_is_full_again_and_again_loses_nothing(
    disk: SmallDisk, cycles: int
) -> None:
    """Every read is answered while it is full, and what was acknowledged is there afterwards."""
    acknowledged: set[str] = set()
    for cycle in range(cycles):
        opened = stopped_server(disk.data) if cycle % 3 else server_here(disk.data)
        async with opened as here:
            await readiness(here, 200 if cycle % 2 == 0 else 503)
            if cycle % 2 == 0:
                acknowledged.add(await here.create("greet", mode="sync"))
                disk.fill()
            with trio.fail_after(PATIENCE):
                while (asked := await ask_for_new_work(here)).status_code != 503:
                    acknowledged.add(asked.json()["run_id"])
            await readiness(here, 503)
            await all_is_read(here, acknowledged)
            if cycle % 2:
                disk.free()
                await readiness(here, 200)
    disk.free()
    async with server_here(disk.data) as here:
        listed = (await here.http.get("/runs?limit=500")).json()["runs"]
        assert {run["run_id"] for run in listed} == acknowledged
        for run_id in acknowledged:
            end = await runs_of(here.node).executor.end_of(run_id)
            assert end.state.status.value == "succeeded"


@asynccontextmanager
async def stopped_server(data: Path) -> Any:
    """Run a server that is stopped in good order."""
    async with server_here(data, drain_grace=0.1, cancel_grace=0.1) as here:
        yield here
        here.server.stop()
        with trio.fail_after(PATIENCE):
            await here.ended.wait()
