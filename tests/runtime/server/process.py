"""A server as a process of its own, and curl."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.runtime.http.sse import Event, Parser

PATIENCE = 30.0  # seconds that anything here may take


class ServerProcess:
    """`perdure serve`."""

    def __init__(self, data: Path, *options: str, **variables: str) -> None:
        """Start it, and wait until it is ready."""
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("PERDURE_")
        }
        self.errors = data.parent / f"{data.name}.stderr"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "perdure.runtime.cli", "serve", "--json"),
                    *("--data-dir", str(data), *options),
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**environment, **variables},
                cwd=data.parent,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.errors.read_text()
        self.about: dict[str, Any] = json.loads(line)
        self.url: str = self.about["url"]

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end."""
        try:
            return self.process.wait(PATIENCE)
        finally:
            assert self.process.stdout is not None
            self.process.stdout.close()

    def log_lines(self) -> list[dict[str, Any]]:
        """What it has logged."""
        return [json.loads(line) for line in self.errors.read_text().splitlines()]

    def get(self, path: str) -> Any:
        """Read something."""
        with urlopen(self.url + path, timeout=PATIENCE) as response:  # noqa: S310 - our own
            return json.loads(response.read())

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Ask for something."""
        request = Request(  # noqa: S310 - our own
            self.url + path,
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urlopen(request, timeout=PATIENCE) as response:  # noqa: S310
            return json.loads(response.read())

    def start(self, entry_id: str, **args: Any) -> str:
        """Create a run of the demo."""
        body = {"plugin_id": "demo", "entry_id": entry_id, "args": args}
        return str(self.post("/runs", body)["run_id"])

    def until(self, run_id: str, *statuses: str) -> dict[str, Any]:
        """Wait until a run is in one of some statuses."""
        deadline = time.monotonic() + PATIENCE
        while True:
            run: dict[str, Any] = self.get(f"/runs/{run_id}")
            if run["status"] in statuses:
                return run
            assert time.monotonic() < deadline, run
            time.sleep(0.02)


@contextmanager
def server(data: Path, *options: str, **variables: str) -> Iterator[ServerProcess]:
    """Run a server for the length of a block; what is left of it then is killed."""
    started = ServerProcess(data, "--port", "0", *options, **variables)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.signal(signal.SIGKILL)
            started.wait()


class Curl:
    """`curl -N` on a stream of events."""

    def __init__(self, url: str, last_id: str | None = None) -> None:
        """Begin to follow."""
        header = [] if last_id is None else ["-H", f"Last-Event-ID: {last_id}"]
        self.process = subprocess.Popen(
            ["curl", "-sN", *header, url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.parser = Parser()
        self.events: list[Event] = []

    def until(self, *kinds: str, count: int = 1) -> list[Event]:
        """Read until so many events of some kinds came, or the stream ended."""
        assert self.process.stdout is not None
        while sum(event.kind in kinds for event in self.events) < count:
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                break
            self.events += self.parser.feed(data)
        return self.events

    def stop(self) -> str:
        """Stop following; give what to come back with."""
        self.process.kill()
        self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.parser.last_id
