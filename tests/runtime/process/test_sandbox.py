"""What the system lets us do is found out once, beside the event loop."""

from __future__ import annotations

import threading
from functools import lru_cache

import pytest
from trio.testing import wait_all_tasks_blocked

from runtime.process import sandbox
from tests.runtime.process.test_processes import example, start


async def test_first_starts_wait_for_one_look_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop goes on meanwhile; those that start later need no look."""
    looked: list[int] = []
    may_end = threading.Event()

    def look(_options: tuple[str, ...]) -> None:
        looked.append(threading.get_ident())
        may_end.wait(10)

    monkeypatch.setattr(sandbox, "_first_that_works", look)
    monkeypatch.setattr(sandbox, "features", lru_cache(sandbox.features.__wrapped__))
    async with example("python") as s:
        runs = [await start(s, "greet") for _ in range(3)]
        while {(await s.read(run_id))["status"] for run_id in runs} != {"running"}:
            await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        may_end.set()
        for run_id in [*runs, await start(s, "greet")]:
            assert (await s.finished(run_id))["status"] == "succeeded"
    assert len(looked) == 2  # for processes, and for networks
    assert threading.get_ident() not in looked
