"""A whole server over its socket: starting, disconnects, figures, going down."""

from __future__ import annotations

import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from perdure.runtime.http import event_routes as events
from perdure.runtime.kernel import live_listing
from perdure.runtime.kernel.listing import ListingFile
from perdure.runtime.kernel.opening import StartUp
from perdure.runtime.runs import part
from perdure.runtime.runs.part import runs_of
from perdure.runtime.server.server import Entrance, gate_of, is_loopback, url_of
from tests.runtime.http.sse import Event, following
from tests.runtime.server.here import server_here
from tests.runtime.settings import settings_with


async def until_followed(here: Any, count: int = 1) -> None:
    """Wait until so many follow."""
    with trio.fail_after(10):
        while here.node.channels.followers["sse"] != count:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.01)


# Starting


async def test_while_a_server_starts_it_is_alive_and_not_ready() -> None:
    """Everything else waits: a browser that comes back would take a refusal as final."""
    start_up = StartUp()
    entrance = Entrance(start_up)
    async with following(entrance, "/healthz") as alive:
        await alive.over.wait()
    assert alive.status == 200
    start_up.watch("runs taken up", lambda: (5, 20_000))
    transport = httpx.ASGITransport(app=entrance)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        ready = await http.get("/readyz")
    assert ready.status_code == 503
    assert ready.json() == {
        "ready": False,
        "why": "starting: 5 of 20,000 runs taken up",
        "progress": [{"what": "runs taken up", "done": 5, "of": 20_000}],
    }

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with following(entrance, "/runs") as early:
        await trio.testing.wait_all_tasks_blocked()
        assert early.status == 0
        entrance.open(app, None)  # type: ignore[arg-type]  # nobody asks for a socket
        await early.over.wait()
    assert early.status == 204


@pytest.mark.parametrize(
    ("host", "url", "local"),
    [
        ("127.0.0.1", "http://127.0.0.1:1", True),
        ("localhost", "http://localhost:1", True),
        ("::1", "http://[::1]:1", True),
        ("0.0.0.0", "http://127.0.0.1:1", False),  # noqa: S104 - an example
        ("::", "http://[::1]:1", False),
        ("10.0.0.7", "http://10.0.0.7:1", False),
        ("example.org", "http://example.org:1", False),
    ],
)
def test_a_server_knows_its_names(host: str, url: str, local: bool) -> None:
    """It answers to the address it was given, and to local names."""
    settings = settings_with(host=host, hosts=["perdure.example"])
    assert (url_of(settings, 1), is_loopback(host)) == (url, local)
    gate = gate_of(settings)
    for name in (url.removeprefix("http://"), "localhost:1", "perdure.example"):
        assert gate.refuses(name.encode()) is None
    assert gate.refuses(b"elsewhere.example") is not None


async def test_a_log_is_served_while_its_list_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ready, /readyz and figures say how far the list has come, and runs can be read."""
    async with server_here(tmp_path) as here:
        run_ids = [await here.create("greet", mode="sync") for _ in range(3)]
    (tmp_path / "runs.db").unlink()
    monkeypatch.setattr(part, "OPENING", 0.1)
    monkeypatch.setattr(live_listing, "PATIENCE", 0.1)
    goes_on, take_in = threading.Event(), ListingFile.take_in

    def take_in_later(*args: Any, **more: Any) -> None:
        goes_on.wait(30)
        take_in(*args, **more)

    monkeypatch.setattr(ListingFile, "take_in", take_in_later)
    async with server_here(tmp_path) as here:
        response = await here.http.get("/readyz")
        (progress,) = response.json()["progress"]
        head = (await here.node.log.head()).position
        assert (response.status_code, progress) == (
            200,
            {"what": "records in the list of runs", "done": 0, "of": head},
        )
        assert (await here.record(run_ids[0]))["status"] == "succeeded"
        assert (await here.http.get("/runs")).json()["runs"] == []
        goes_on.set()
        with trio.fail_after(20):
            while (await here.http.get("/readyz")).json()["progress"]:  # noqa: ASYNC110
                await trio.sleep(0.05)
        listed = (await here.http.get("/runs")).json()["runs"]
        assert [run["run_id"] for run in listed] == run_ids[::-1]


async def test_a_directory_in_the_place_of_a_cache_file_is_survived(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are executed and read. The list says which file is in its way, and comes later."""
    monkeypatch.setattr(part, "OPENING", 0.1)
    caches = [tmp_path / f"{name}.db" for name in ("snapshots", "references", "runs")]
    for path in caches:
        path.mkdir()
    async with server_here(tmp_path) as here:
        run_id = await here.create("greet", mode="sync")
        assert (await here.record(run_id))["status"] == "succeeded"
        assert (await here.http.get("/runs")).json()["error"]["code"] == "UNAVAILABLE"
        assert str(caches[-1]) in caplog.text
        assert "Traceback" not in caplog.text
        for path in caches:
            path.rmdir()
        with trio.fail_after(20):
            while (await here.http.get("/runs")).status_code != 200:  # noqa: ASYNC110
                await trio.sleep(0.1)


# Disconnects


async def test_a_client_that_hangs_up_ends_nothing_but_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was asked for with mode sync goes on and can be read; so does one followed.

    That it is gone is noticed when heartbeats come back (R61).
    """
    monkeypatch.setattr(events, "HEARTBEAT", 0.1)
    async with server_here(tmp_path) as here:
        seen: list[Event] = []
        with trio.move_on_after(0.5):
            await here.create("slow_exports", args={"n": 2}, mode="sync", idempotency_key="k")
        with trio.move_on_after(0.3):
            await here.events("/events/runs", seen)
        assert seen
        await until_followed(here, 0)
        run_id = await here.create("slow_exports", args={"n": 2}, idempotency_key="k")
        with trio.fail_after(20):
            await runs_of(here.node).executor.end_of(run_id)
        assert (await here.record(run_id))["status"] == "succeeded"


async def test_one_watchdog_watches_a_server(tmp_path: Path) -> None:
    """Also while entries run apart, on nodes of their own."""
    async with server_here(tmp_path, trigger="direct") as here, trio.open_nursery() as nursery:
        body = {"plugin_id": "test", "entry_id": "nap", "args": {"seconds": 60}}
        nursery.start_soon(partial(here.http.post, "/plugin/trigger", json=body))
        while not here.serving.port.counters.requests:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.01)
        await trio.sleep(0.1)
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("perdure-watchdog") == 1
        nursery.cancel_scope.cancel()


# Figures


async def test_the_memory_budget_is_shown(tmp_path: Path) -> None:
    """As it was set, with what is held now: nothing, when nobody asks for anything."""
    async with server_here(tmp_path, memory_budget=40 << 20) as here:
        told = (await here.http.get("/capabilities")).json()
        assert told["limits"]["memory_bytes"] == 40 << 20
        assert told["limits"]["connection_memory_bytes"] == 10 << 20
        assert told["websocket"]["call_bytes"] == 10 << 20
        await here.create("greet", mode="sync")
        text = (await here.http.get("/metrics")).text
        assert "perdure_memory_budget_bytes 4.194304e+07" in text
        assert "perdure_memory_refusals_total 0.0" in text
        (held,) = [line for line in text.splitlines() if line.startswith("perdure_memory_held")]
        assert 0 < float(held.split()[1]) < 10_000  # the head of this very request
        assert here.serving.port.budget.held == 0


@pytest.mark.needs("promtool")
async def test_figures_are_as_prometheus_wants_them(tmp_path: Path) -> None:
    """Promtool finds nothing to complain about, and the figures are true."""
    async with server_here(tmp_path) as here, trio.open_nursery() as nursery:
        for _ in range(3):
            await here.create("greet", mode="sync")
        await here.create("question")
        nursery.start_soon(here.events, "/events/runs", [])
        await until_followed(here)
        await trio.sleep(0.3)  # changes are taken in together
        response = await here.http.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        figures = dict(line.rsplit(" ", 1) for line in response.text.splitlines() if line[0] != "#")
        assert figures['perdure_runs{status="succeeded"}'] == "3.0"
        assert figures['perdure_runs{status="running"}'] == "1.0"
        assert figures["perdure_executions"] == "1.0"
        assert figures['perdure_followers{surface="sse"}'] == "1.0"
        assert float(figures["perdure_http_requests_total"]) >= 6
        assert float(figures["perdure_log_position"]) == (await here.node.log.head()).position
        assert float(figures["process_resident_memory_bytes"]) > 1e6
        checked = await trio.run_process(
            ["promtool", "check", "metrics"],
            stdin=response.content,
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert (checked.returncode, checked.stdout) == (0, b"")
        nursery.cancel_scope.cancel()


# Going down


async def test_followers_see_the_ends_of_runs_before_they_are_told_to_go(tmp_path: Path) -> None:
    """What ends in the grace period is seen; then `bye`, and the server is gone."""
    async with server_here(tmp_path, drain_grace=10.0) as here:
        seen: list[Event] = []
        run_id = await here.create("slow_exports", args={"n": 2})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.events, "/events/runs", seen)
            await until_followed(here)
            here.server.stop()
            await trio.sleep(0.1)
            ready = await here.http.get("/readyz")
            assert (ready.status_code, ready.json()["ready"]) == (503, False)
            body = {"plugin_id": "test", "entry_id": "greet", "args": {}}
            refused = await here.http.post("/runs", json=body)
            assert refused.json()["error"]["code"] == "UNAVAILABLE"
            assert refused.headers["retry-after"] == "1"
        assert [event.kind for event in seen][-1] == "bye"
        ended = [event for event in seen if event.kind == "run"][-1].data
        assert (ended["run_id"], ended["status"]) == (run_id, "succeeded")
        with pytest.raises(httpx.ConnectError):
            await here.http.get("/readyz")


async def test_a_run_that_only_waits_does_not_hold_up_a_server(tmp_path: Path) -> None:
    """It is let go of at once, and the next start goes on with it."""
    async with server_here(tmp_path, drain_grace=3600.0) as here:
        run_id = await here.create("question")
        here.server.stop()
        with trio.fail_after(30):
            await here.node.leaving.wait()
    async with server_here(tmp_path) as here:
        assert (await here.record(run_id))["status"] == "running"


async def test_a_request_with_a_known_key_is_answered_while_going_down(tmp_path: Path) -> None:
    """A client that asks again learns what became of its run."""
    async with server_here(tmp_path, drain_grace=5.0) as here:
        known = await here.create("slow_exports", args={"n": 1}, idempotency_key="k")
        here.server.stop()
        await trio.sleep(0.05)
        assert await here.create("slow_exports", args={"n": 1}, idempotency_key="k") == known
