"""Waiting for a run over HTTP: GET /runs/{run_id}?wait=SECONDS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.runtime.kernel.errors import ERRORS
from perdure.runtime.runs.part import runs_of
from tests.runtime.http.client import client, error_of
from tests.runtime.server.here import Here, server_here


async def test_a_read_that_waits_answers_when_the_run_has_ended(autojump_clock: MockClock) -> None:
    """Or when the time is over; either way with the record that is read without waiting."""
    async with client() as asking:
        run_id = await asking.started("nap", args={"seconds": 10})
        begun = trio.current_time()
        early = await asking.record(run_id, wait="2.5")
        assert early["status"] == "running"
        assert (await asking.record(run_id, wait=0))["status"] == "running"
        assert 2.5 <= trio.current_time() - begun < 3.5
        late = await asking.record(run_id, wait=30)
        assert late["status"] == "succeeded"
        assert late == await asking.record(run_id)
        assert trio.current_time() - begun < 11


async def test_a_read_can_wait_for_the_next_change(autojump_clock: MockClock) -> None:
    """With the cursor of the answer before, as a client that polls would."""
    async with client() as asking:
        run_id = await asking.started("stages")
        first = await asking.record(run_id, wait=0.5)
        assert (first["stage"], first["progress"]) == ("loading", None)
        then = await asking.record(run_id, wait=30, after=first["cursor"])
        assert (then["status"], then["progress"]) == ("running", 0.4)


@pytest.mark.parametrize(
    ("query", "code", "told"),
    [
        ({"wait": "1", "at": "2026-08-01T12:00:00Z"}, "VALIDATION_ERROR", "at for the past"),
        ({"after": "x"}, "VALIDATION_ERROR", "after needs wait"),
        ({"wait": "-1"}, "VALIDATION_ERROR", "wait is a number of seconds"),
        ({"wait": "1e3"}, "VALIDATION_ERROR", "wait is a number of seconds"),
        ({"wait": "nan"}, "VALIDATION_ERROR", "wait is a number of seconds"),
        ({"wait": "31"}, "VALIDATION_ERROR", "at most 30 seconds"),
        ({"wait": "1", "after": "x"}, "INVALID_CURSOR", ""),
    ],
)
async def test_a_wait_that_makes_no_sense_is_refused(
    autojump_clock: MockClock, query: dict[str, Any], code: str, told: str
) -> None:
    """The past does not change, a place to go on from needs a wait, and every wait is bounded."""
    async with client() as asking:
        run_id = await asking.started("nap", args={"seconds": 50})
        status = ERRORS[code].status
        error = error_of(await asking.get(f"/runs/{run_id}", params=query), status)
        assert error["code"] == code
        assert told in error["message"]


async def test_nobody_waits_for_a_run_that_does_not_exist(autojump_clock: MockClock) -> None:
    """It is not found at once."""
    async with client() as asking:
        error = error_of(await asking.get("/runs/nobody", params={"wait": 20}), 404)
        assert error["code"] == "RUN_NOT_FOUND"
        assert trio.current_time() < 1


async def test_a_client_that_hangs_up_ends_its_wait(tmp_path: Path) -> None:
    """Nothing of it stays in the server, and the run goes on. One that still reads is answered."""
    async with server_here(tmp_path) as here:
        run_id = await here.create("nap", args={"seconds": 50})
        waits = runs_of(here.node).executor._ends._awaited
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.http.get, f"/runs/{run_id}?wait=20")
            with trio.fail_after(10):
                while run_id not in waits:  # noqa: ASYNC110 - nobody tells
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        with trio.fail_after(10):
            while waits:  # noqa: ASYNC110 - as above
                await trio.sleep(0.01)
        assert (await here.record(run_id))["status"] == "running"
        with trio.fail_after(10):
            assert b'"status":"running"' in await half_closed(here, f"/runs/{run_id}?wait=20")


async def half_closed(here: Here, path: str) -> bytes:
    """Ask, close the side that asks, and read what is answered."""
    address = here.http.base_url
    async with await trio.open_tcp_stream(address.host, address.port or 80) as stream:
        host = f"{address.host}:{address.port}"
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        await stream.send_eof()
        return b"".join([data async for data in stream])
