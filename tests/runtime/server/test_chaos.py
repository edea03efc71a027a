"""A server that is killed again and again, under load, with clients that come back."""

from __future__ import annotations

import json
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import URLError

import cbor2
import httpx
import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from perdure.eventlog.sqlite import SqliteStore
from perdure.eventlog.store import Bounds
from perdure.runtime.features import FEATURES
from perdure.runtime.kernel.channels.event import ChannelEvent
from tests.runtime.http.sse import Parser
from tests.runtime.server.process import ServerProcess

PATIENCE = 60.0
_DELTA = ("run_id", "status", "updated_at", "progress", "stage", "message")
GONE = (OSError, URLError, HTTPException, httpx.HTTPError, WebSocketException, EOFError)


class Follower(threading.Thread):
    """A client that follows a channel, and comes back with its cursor whenever it is cut off."""

    def __init__(
        self, port: int, channel: str, over: str, cursor: str, stop: threading.Event
    ) -> None:
        """Follow from a cursor on."""
        super().__init__(daemon=True)
        self.channel = channel
        self.seen: list[Any] = []
        self.connections = 0
        self._port = port
        self._cursor = cursor
        self._follow = {"sse": self._over_sse, "cbor": self._over_cbor, "json": self._over_json}[
            over
        ]
        self._stop_event = stop

    def run(self) -> None:
        """Follow until told to stop."""
        while not self._stop_event.is_set():
            with suppress(*GONE):
                self._follow()
            time.sleep(0.02)

    def _over_sse(self) -> None:
        headers = {"last-event-id": self._cursor}
        url = f"http://127.0.0.1:{self._port}/events/{self.channel}"
        parser = Parser()
        with httpx.stream("GET", url, headers=headers, timeout=30) as response:
            assert response.status_code == 200, response.read()
            self.connections += 1
            for data in response.iter_raw():
                for event in parser.feed(data):
                    if event.kind in {"run", "export", "record"}:
                        self.seen.append(event.data)
                    self._cursor = parser.last_id or self._cursor
                if self._stop_event.is_set():
                    return

    def _over_json(self) -> None:
        self._over_websocket("perdure.v1+json", json.dumps, json.loads)

    def _over_cbor(self) -> None:
        self._over_websocket("perdure.v1+cbor", cbor2.dumps, cbor2.loads)

    def _over_websocket(
        self, format_: str, dumps: Callable[[Any], Any], loads: Callable[[Any], Any]
    ) -> None:
        url = f"ws://127.0.0.1:{self._port}/ws"
        with connect(url, subprotocols=[Subprotocol(format_)], max_size=None) as client:
            self.connections += 1
            follow = {"id": 1, "follow": {"channel": self.channel}, "after": self._cursor}
            client.send(dumps(follow))
            while not self._stop_event.is_set():
                try:
                    message = loads(client.recv(timeout=1))
                except TimeoutError:
                    continue
                if "error" in message:
                    assert message["error"]["code"] == "UNAVAILABLE", message
                    return
                self.seen += message.get("events", ())
                self._cursor = message.get("cursor") or message.get("live") or self._cursor


class Load(threading.Thread):
    """A client that creates runs, and asks again with the same key until it is answered."""

    def __init__(self, port: int, name: int, stop: threading.Event) -> None:
        """Nothing is created before it is started."""
        super().__init__(daemon=True)
        self.accepted: list[str] = []
        self._url = f"http://127.0.0.1:{port}/runs"
        self._name = name
        self._stop_event = stop

    def run(self) -> None:
        """Create runs until told to stop."""
        number = 0
        while not self._stop_event.is_set():
            entry, args = (("count", {"to": 5}), ("steps", {}), ("files", {}))[number % 3]
            body = {
                "plugin_id": "demo",
                "entry_id": entry,
                "args": args,
                "idempotency_key": f"{self._name}/{number}",
            }
            with suppress(*GONE):
                answer = httpx.post(self._url, json=body, timeout=10)
                if answer.status_code < 300:
                    self.accepted.append(answer.json()["run_id"])
                    number += 1
                    continue
                assert answer.status_code == 503, answer.text
            time.sleep(0.02)


def free_port() -> int:
    """Give a port that nobody listens on."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def shown(data: Path, channel: str) -> list[ChannelEvent]:
    """What the log holds for a channel, as it shows it."""
    view = FEATURES.channels[channel]
    with closing(SqliteStore.open_reader(data / "log.db")) as store:
        records, after = [], 0
        while True:
            page = store.read_all(after, Bounds())
            records += page.records
            if not page.more:
                break
            after = page.records[-1].position
    passing = (r for r in records if view.names is None or r.name in view.names)
    return view.shown(list(passing))


def place(channel: str, event: Any) -> tuple[Any, ...]:
    """Where an event stands among the others, whatever it tells."""
    return identity(channel, event)[:4]


def identity(channel: str, event: Any) -> tuple[Any, ...]:
    """What tells an event from all others of its channel."""
    if channel == "log":
        return (event["position"], event["event_id"])
    if channel == "export":
        return (event["export_item_id"],)
    return (event["op"], *(event.get(name) for name in _DELTA))


def as_told(
    channel: str, expected: list[ChannelEvent], seen: set[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """What the log holds for a channel, as a follower that lags behind may be told it.

    A report that was not seen is told by the next change of its run; nothing else is left out.
    """
    told: list[tuple[Any, ...]] = []
    left_out: dict[str | None, Any] = {}
    for shown_event in expected:
        event, subject = shown_event.as_event(), shown_event.subject
        if shown_event.is_report or subject in left_out:
            event = {**left_out.pop(subject, {}), **event}
        identified = identity(channel, event)
        if shown_event.is_report and identified not in seen:
            left_out[subject] = event
        else:
            told.append(identified)
    assert not left_out, "a report was not told at all"
    return told


@pytest.mark.parametrize("kills", [2, pytest.param(40, marks=pytest.mark.soak)])
def test_followers_miss_nothing_and_get_nothing_twice(kills: int, tmp_path: Path) -> None:
    """Through so many kill -9 under load, on every surface; each accepted run ends.

    (R32, R44, R126)
    """
    chance = random.Random(kills)
    port, stop, done = free_port(), threading.Event(), threading.Event()
    data = tmp_path / "data"
    server = ServerProcess(data, "--port", str(port))
    beginning = server.get("/runs")["cursor"]
    followers = [
        Follower(port, channel, over, beginning, done)
        for channel in ("log", "export", "runs")
        for over in ("sse", "cbor", "json")
    ]
    loads = [Load(port, number, stop) for number in range(3)]
    for thread in (*followers, *loads):
        thread.start()
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0.3, 1.2))
            server.signal(signal.SIGKILL)
            server.wait()
            server = ServerProcess(data, "--port", str(port))
        stop.set()
        for load in loads:
            load.join(PATIENCE)
        accepted = [run_id for load in loads for run_id in load.accepted]
        for run_id in accepted:
            server.until(run_id, "succeeded", "failed")
        deadline = time.monotonic() + PATIENCE
        expected = {channel: shown(data, channel) for channel in ("log", "export", "runs")}
        last = {name: expected[name][-1].as_event() for name in expected}
        for follower in followers:
            name = follower.channel
            while not follower.seen or place(name, follower.seen[-1]) != place(name, last[name]):
                assert time.monotonic() < deadline, (name, len(follower.seen))
                time.sleep(0.05)
    finally:
        done.set()
        server.signal(signal.SIGTERM)
        server.wait()
    assert len(accepted) == len(set(accepted)) > kills
    for follower in followers:
        name = follower.channel
        seen = [identity(name, event) for event in follower.seen]
        assert len(set(seen)) == len(seen), f"{name}: something came twice"
        wanted = as_told(name, expected[name], set(seen))
        assert seen == wanted, f"{name}: something is missing, or out of order"
        assert follower.connections > kills / 2
