"""A server whose disk is full: it refuses, it is read, it goes down, and it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from perdure.eventlog import DiskFull, SqliteStore
from perdure.runtime.runs.part import runs_of
from tests.runtime.server.here import Here, server_here


class Disk:
    """A disk that can be full."""

    def __init__(self) -> None:
        """There is room."""
        self.is_full = False


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """The disk of every log in this process."""
    disk, commit = Disk(), SqliteStore.commit

    def commit_if_there_is_room(store: SqliteStore, records: Any) -> None:
        if disk.is_full:
            raise DiskFull("no space left on the disk")
        commit(store, records)

    monkeypatch.setattr(SqliteStore, "commit", commit_if_there_is_room)
    yield disk
    disk.is_full = False


async def filled(here: Here, disk: Disk) -> tuple[str, str]:
    """Let the disk become full while one run asks and one works; give both."""
    asking = await here.create("question")
    working = await here.create("slow_exports", args={"n": 1000})
    while not (await here.record(asking))["questions"]:  # noqa: ASYNC110 - nobody tells
        await trio.sleep(0.01)
    disk.is_full = True
    while here.node.log.writer.stalled is None:  # noqa: ASYNC110 - nobody tells
        await trio.sleep(0.01)
    return asking, working


async def test_what_cannot_be_written_is_refused_and_all_can_be_read(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits without an answer, the log says why, and later everything goes on."""
    async with server_here(tmp_path) as here:
        asking, working = await filled(here, disk)
        (question,) = (await here.record(asking))["questions"]
        with trio.fail_after(20):
            for path in ("", "/export", "/logs"):
                assert (await here.http.get(f"/runs/{working}{path}")).status_code == 200
            assert len((await here.http.get("/runs")).json()["runs"]) == 2
            answer = {"question_id": question, "answer": 1}
            for address, body in (
                (f"/runs/{asking}/cancel", {}),
                (f"/runs/{working}/cancel", {}),
                (f"/runs/{asking}/answers", answer),
            ):
                refused = await here.http.post(address, json=body)
                assert refused.status_code == 503
                assert "disk is full" in refused.json()["error"]["message"]
            ready = await here.http.get("/readyz")
            assert (ready.status_code, "disk is full" in ready.json()["why"]) == (503, True)
        assert [r.message for r in caplog.records if "nothing can be written" in r.message]
        disk.is_full = False
        with trio.fail_after(20):
            while (await here.http.get("/readyz")).status_code != 200:  # noqa: ASYNC110
                await trio.sleep(0.05)
            await here.http.post(f"/runs/{asking}/answers", json=answer)
            assert (
                await runs_of(here.node).executor.end_of(asking)
            ).state.status.value == "succeeded"


async def test_a_server_with_a_full_disk_goes_down(tmp_path: Path, disk: Disk) -> None:
    """What waits for room is given up: it was never acknowledged. The next start goes on."""
    with trio.fail_after(60):
        async with server_here(tmp_path, drain_grace=0.1, cancel_grace=0.1) as here:
            _, working = await filled(here, disk)
            here.server.stop()
            await here.ended.wait()
    disk.is_full = False
    async with server_here(tmp_path) as here:
        assert (await here.record(working))["status"] == "running"
