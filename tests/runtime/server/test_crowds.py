"""A server among crowds that send without end and read nothing: it lives, and serves the others."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import trio

from tests.repository.tree import ROOT
from tests.runtime.server.crowd import crowd, figures, kinds, latencies, memory_peak
from tests.runtime.server.process import ServerProcess, server
from tools.soak_record import FIGURES

MOST = 256 << 20  # bytes of memory that the server may have
PATIENCE = 20.0  # seconds that a quiet client has, while two hundred others ask for all there is
PLUGIN = {"PERDURE_MODULES": "tests.runtime.world", "PYTHONPATH": str(ROOT)}


def poured(running: ServerProcess, text: str) -> str:
    """Give a run that has put out some MiB of text."""
    args = {"items": 60, "size": 60_000, "text": text}
    body = {"plugin_id": "test", "entry_id": "pour", "args": args}
    run_id = str(running.post("/runs", body)["run_id"])
    running.until(run_id, "succeeded")
    return run_id


async def among(
    running: ServerProcess, kind: tuple[bytes, bytes], count: int, seconds: float
) -> float:
    """Ask quietly while a crowd is there; give how long the slowest answer took."""

    def ask() -> None:
        running.get("/readyz")
        running.get("/runs?limit=5")

    port = urlsplit(running.url).port
    assert port is not None
    async with crowd(port, count, kind):
        took = max(await latencies(ask, seconds))
        assert 1 << 20 < figures(running)["perdure_memory_held_bytes"] <= 64 << 20
    with trio.fail_after(30):
        while figures(running)["perdure_memory_held_bytes"] > 10_000:  # noqa: ASYNC110
            await trio.sleep(0.1)
    assert [line for line in running.log_lines() if line["level"] == "error"] == []
    return took


@pytest.mark.parametrize("kind", ["answers in JSON", "bodies"])
async def test_a_few_that_read_nothing_cost_a_bounded_memory(tmp_path: Path, kind: str) -> None:
    """The server answers others meanwhile, and holds nothing for them afterwards."""
    with server(tmp_path / "data", **PLUGIN) as running:
        await among(running, kinds(poured(running, "\x01"))[kind], 20, seconds=1)
        assert memory_peak(running) < MOST


@pytest.mark.soak
@pytest.mark.parametrize("values", [340_000, 19_000], ids=["too many", "as many as may be"])
async def test_many_values_delay_nobody(
    tmp_path: Path, values: int, request: pytest.FixtureRequest
) -> None:
    """While four clients send a MiB of them again and again, others wait less than 100 ms."""
    body = b'{"plugin_id":"test","entry_id":"greet","args":{"x":[%b]}}' % b",".join(
        [b"[]"] * values
    )
    with server(tmp_path / "data", **PLUGIN) as running:

        async def send() -> None:
            async with httpx.AsyncClient(base_url=running.url, timeout=60) as http:
                while True:
                    headers = {"content-type": "application/json"}
                    answer = await http.post("/runs", content=body, headers=headers)
                    assert answer.status_code == 422

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(send)
            took = await latencies(lambda: running.get("/readyz"), 10)
            nursery.cancel_scope.cancel()
        p95 = sorted(took)[len(took) * 95 // 100]
        request.node.user_properties.append((FIGURES, f"{p95 * 1000:.0f} ms (p95)"))
        assert p95 < 0.1


@pytest.mark.soak
@pytest.mark.parametrize("kind", kinds("a run"))
async def test_two_hundred_that_read_nothing_cost_a_bounded_memory(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """Of any kind: less than 256 MB, a quiet client is served, and nothing goes wrong."""
    with server(tmp_path / "data", **PLUGIN) as running:
        took = await among(running, kinds(poured(running, "\x01"))[kind], 200, seconds=15)
        peak = memory_peak(running)
        said = f"slowest answer {took:.1f} s, {peak >> 20} MiB at most"
        request.node.user_properties.append((FIGURES, said))
        assert peak < MOST, said
        assert took < PATIENCE, said
