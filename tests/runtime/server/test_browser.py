"""A browser that is not ours: EventSource and fetch of Chromium, from a page of another origin."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.server.process import PATIENCE, ServerProcess, server

PAGE = """<!doctype html><meta charset="utf-8"><title>a stranger's page</title><script>
const base = "BASE";
const tell = (what) => fetch("/seen", {method: "POST", body: JSON.stringify(what)});
async function main() {
  const headers = {"content-type": "application/json"};
  const create = (entry_id, args) => fetch(base + "/runs", {
    method: "POST", headers, body: JSON.stringify({plugin_id: "demo", entry_id, args})});
  const runs = await (await fetch(base + "/runs?limit=1")).json();
  const source = new EventSource(base + "/events/export?plugin_id=demo&after=" + runs.cursor);
  source.addEventListener("export", (event) => tell(
    {kind: "export", item: JSON.parse(event.data).export_item_id, last: event.lastEventId}));
  source.addEventListener("bye", (event) => tell({kind: "bye", last: event.lastEventId}));
  source.onopen = () => tell({kind: "open"});
  const run = await (await create("count", {to: 10, delay: 0.05})).json();
  const one = new EventSource(base + "/runs/" + run.run_id + "/events");
  let ended = 0;
  one.addEventListener("end", () => { ended += 1; });
  one.onerror = () => {
    if (one.readyState === EventSource.CLOSED) tell({kind: "closed", ended});
  };
}
main().catch((error) => tell({kind: "error", message: String(error)}));
</script>"""


class Page:
    """A page on a server of its own, and what it has told."""

    def __init__(self) -> None:
        """Nothing was told so far."""
        self.html = ""
        self.seen: list[dict[str, Any]] = []
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(page.html.encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                page.seen.append(json.loads(body))
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self.server.server_address[1]}"

    def told(self, kind: str) -> list[dict[str, Any]]:
        """What it has told of a kind."""
        return [one for one in list(self.seen) if one["kind"] == kind]

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until it has told enough."""
        deadline = time.monotonic() + 2 * PATIENCE
        while not holds():
            assert not self.told("error"), self.seen
            assert time.monotonic() < deadline, self.seen
            time.sleep(0.05)


@contextmanager
def serving_page() -> Iterator[Page]:
    """Serve a page for the length of a block."""
    page = Page()
    thread = threading.Thread(target=page.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield page
    finally:
        page.server.shutdown()
        page.server.server_close()
        thread.join()


@contextmanager
def browsing(url: str, profile: Path) -> Iterator[None]:
    """Look at a page for the length of a block."""
    options = (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    )
    browser = subprocess.Popen(
        ["chromium", *options, "--remote-debugging-port=0", f"--user-data-dir={profile}", url],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        browser.terminate()
        browser.wait(PATIENCE)


def come_back(page: Page, running: ServerProcess) -> None:
    """Let a server do something, and wait until the page is there again."""
    lives = len(page.told("open"))
    for _ in range(2):
        running.start("count", to=10, delay=0.02)
    page.until(lambda: len(page.told("open")) > lives)


@pytest.mark.needs("chromium")
def test_a_browser_comes_back_and_misses_nothing(tmp_path: Path) -> None:
    """Through a restart and through kill -9, with its Last-Event-ID; what has ended it lets be.

    (R44, R117)
    """
    data = tmp_path / "data"
    with serving_page() as page:
        allowed = {"PERDURE_ORIGINS": page.origin, "PERDURE_DRAIN_GRACE": "0.2"}
        with server(data, **allowed) as first:
            port = first.url.rpartition(":")[2]
            page.html = PAGE.replace("BASE", first.url)
            with browsing(page.origin, tmp_path / "profile"):
                page.until(lambda: len(page.told("export")) >= 5)
                page.until(lambda: bool(page.told("closed")))
                first.signal()
                assert first.wait() == 0
                with server(data, "--port", port, **allowed) as second:
                    come_back(page, second)
                    second.signal(signal.SIGKILL)
                    second.wait()
                with server(data, "--port", port, **allowed) as third:
                    come_back(page, third)
                    runs = third.get("/runs")["runs"]
                    for run in runs:
                        third.until(run["run_id"], "succeeded")
                    kept = {
                        item["export_item_id"]
                        for run in runs
                        for item in third.get(f"/runs/{run['run_id']}/export")["items"]
                    }
                    page.until(lambda: len(page.told("export")) >= len(kept))
        items = [told["item"] for told in page.told("export")]
        assert len(runs) == 5
        assert len(items) == len(set(items))
        assert set(items) == kept
        assert page.told("bye")
        assert [told["ended"] for told in page.told("closed")] == [1]
