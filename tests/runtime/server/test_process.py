"""`perdure serve` as people run it: started, stopped, killed, started again."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.runtime.server.certificate import write_certificate
from tests.runtime.server.process import Curl, server

ENDED = ("succeeded", "failed", "canceled", "timeout")


def perdure(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "perdure.runtime.cli", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )


# Starting


def test_what_is_printed_works_when_typed(tmp_path: Path) -> None:
    """People are told what to open and what to type, and it does what it says."""
    data = tmp_path / "data"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "perdure.runtime.cli",
            "serve",
            "--port",
            "0",
            "--data-dir",
            str(data),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PERDURE_DRAIN_GRACE": "0.1"},
    )
    try:
        assert process.stdout is not None
        printed = ""
        while "Ctrl-C stops it." not in printed:
            printed += process.stdout.readline()
        page = re.findall(r"^Open +(\S+)$", printed, re.MULTILINE)
        typed = re.findall(r"^  (curl .*)$", printed, re.MULTILINE)
        assert len(typed) == 3
        (shown,) = page
        done = subprocess.run(
            ["curl", "-sf", shown], capture_output=True, text=True, timeout=30, check=True
        )
        assert "<html" in done.stdout.lower()
        create, plugins, follow = (shlex.split(line) for line in typed)
        created = json.loads(subprocess.check_output([*create, "-s"], timeout=30))
        assert created["status"] in {"queued", "running"}
        assert b"demo" in subprocess.check_output([*plugins, "-s"], timeout=30)
        following = subprocess.Popen([*follow, "-s"], stdout=subprocess.PIPE)
        assert following.stdout is not None
        seen = b""
        while created["run_id"].encode() not in seen:
            seen += following.stdout.readline()
        following.kill()
        following.wait()
        following.stdout.close()
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_a_server_says_where_it_is_and_takes_it_back(tmp_path: Path) -> None:
    """In a file for its owner alone, which is gone after a clean end."""
    data = tmp_path / "data"
    with server(data) as running:
        announced = data / "server.json"
        assert announced.stat().st_mode & 0o777 == 0o600
        assert json.loads(announced.read_text())["url"] == running.url
        assert running.get("/healthz") == {"status": "ok"}
        assert running.get("/readyz") == {"ready": True, "why": None, "progress": []}
        running.signal()
        assert running.wait() == 0
        assert not announced.exists()


def test_what_keeps_a_server_from_starting_is_said(tmp_path: Path) -> None:
    """A port in use, a held log, a bad host, unreadable or foreign TLS files."""
    data, other = tmp_path / "data", tmp_path / "other"
    (tmp_path / "odd.pem").write_text("no certificate")
    with server(data) as running, socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words, code, message in (
            (("--data-dir", str(other), "--port", port), 5, "already in use"),
            (
                ("--data-dir", str(data), "--port", "0"),
                5,
                f"being written by process {running.process.pid}",
            ),
            (("--data-dir", str(other), "--host", "nowhere.invalid"), 5, "no such address"),
            (("--data-dir", str(other), "--tls-key", "odd.pem"), 2, "needs its key"),
            (
                (*("--data-dir", str(other)), *("--tls-certificate", "no"), *("--tls-key", "no")),
                2,
                "cannot be read",
            ),
            (
                (
                    *("--data-dir", str(other), "--tls-certificate", "odd.pem"),
                    *("--tls-key", "odd.pem"),
                ),
                2,
                "pem form",
            ),
        ):
            done = perdure("serve", *words, cwd=tmp_path)
            assert (done.returncode, message in done.stderr.lower()) == (code, True), done.stderr
            assert "Traceback" not in done.stderr


def test_a_server_that_others_can_reach_warns(tmp_path: Path) -> None:
    """There is no identity yet; it says which settings to set."""
    with server(tmp_path / "data", "--host", "0.0.0.0") as running:  # noqa: S104 - on purpose
        assert running.get("/readyz")["ready"]
        assert running.url.startswith("http://127.0.0.1:")
        deadline = time.monotonic() + 10
        while "does not authenticate clients" not in running.errors.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert "hosts" in running.errors.read_text()


def test_tls_is_served_with_a_certificate(tmp_path: Path) -> None:
    """Clients that trust it are served; commands find the server, too."""
    certificate, key = write_certificate(tmp_path)
    data = tmp_path / "data"
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with server(data, *options) as running:
        assert running.url.startswith("https://127.0.0.1:")
        done = subprocess.run(
            ["curl", "-sf", "--cacert", str(certificate), f"{running.url}/readyz"],
            capture_output=True,
            timeout=30,
            check=True,
        )
        assert json.loads(done.stdout)["ready"]
        asked = perdure("run", "demo.count", "--arg", "to=2", "--data-dir", str(data), cwd=tmp_path)
        assert asked.returncode == 0, asked.stderr


# Stopping


def test_a_drain_leaves_what_has_not_ended_for_the_next_start(tmp_path: Path) -> None:
    """Short runs end in the grace period, long ones go on later, nothing is canceled.

    Meanwhile reading works and new work is refused; followers are told (R35).
    """
    data = tmp_path / "data"
    with server(data, PERDURE_DRAIN_GRACE="2") as first:
        brief = first.start("count", to=10, delay=0.1)
        lasting = first.start("steps", n=20, delay=0.2)
        for run_id in (brief, lasting):
            first.until(run_id, "running")
        following = Curl(f"{first.url}/runs/{lasting}/events")
        following.until("run")
        first.signal()
        time.sleep(0.3)
        with pytest.raises(HTTPError) as refused:
            first.get("/readyz")
        with refused.value as response:
            assert json.loads(response.read())["why"].startswith("going down")
        with pytest.raises(HTTPError) as refused:
            first.start("count", to=1)
        with refused.value as response:
            told = json.loads(response.read())["error"]
        assert (response.status, told["code"]) == (503, "UNAVAILABLE")
        assert "no new work" in told["message"]
        assert first.get(f"/runs/{lasting}")["status"] == "running"
        assert first.wait() == 0
        following.until("never")
        last_id = following.stop()
        assert following.events[-1].kind == "bye"
        said = [line["message"] for line in first.log_lines()]
        assert "shutting down: no new work; waiting up to 2 s for 2 runs to end" in said
        assert "1 run will resume at the next start" in said
    with server(data) as second:
        assert second.get(f"/runs/{brief}")["status"] == "succeeded"
        again = Curl(f"{second.url}/runs/{lasting}/events", last_id)
        again.until("end")
        again.stop()
        run = second.until(lasting, *ENDED)
        assert (run["status"], run["cancel_requested"]) == ("succeeded", False)
        progress = [
            event.data["run"]["progress"]
            for event in (*following.events, *again.events)
            if event.kind == "run" and event.data["run"]["progress"] is not None
        ]
        assert progress == sorted(progress)


def test_a_second_signal_is_immediate(tmp_path: Path) -> None:
    """The server leaves as a crash would, and the next one goes on from the log."""
    data = tmp_path / "data"
    with server(data, PERDURE_DRAIN_GRACE="60") as first:
        run_id = first.start("steps", n=10, delay=0.2)
        first.until(run_id, "running")
        first.signal()
        time.sleep(0.3)
        assert first.process.poll() is None
        begin = time.monotonic()
        first.signal(signal.SIGINT)
        assert first.wait() == 130
        assert time.monotonic() - begin < 5
        assert (data / "server.json").exists()
    with server(data) as second:
        assert second.until(run_id, *ENDED)["status"] == "succeeded"


def test_a_follower_comes_back_after_kill_9_and_misses_nothing(tmp_path: Path) -> None:
    """With the cursor of the last event it saw, as `curl -N` does it (R44, R117)."""
    data = tmp_path / "data"
    seen = []
    last_id: str | None = None
    for life in range(3):
        with server(data) as running:
            begin = f"&after={last_id}" if life == 1 else ""
            url = f"{running.url}/events/export?plugin_id=demo{begin}"
            following = Curl(url, last_id if life > 1 else None)
            for _ in range(3):
                running.start("count", to=10, delay=0.02)
            following.until("export", count=12)
            running.signal(signal.SIGKILL)
            running.wait()
            following.until("never")
            seen += following.events
            last_id = following.stop()
    with server(data) as running:
        following = Curl(f"{running.url}/events/export", last_id)
        runs = running.get("/runs?limit=100")["runs"]
        for run in runs:
            running.until(run["run_id"], *ENDED)
        kept = {
            item["export_item_id"]
            for run in runs
            for item in running.get(f"/runs/{run['run_id']}/export?limit=500")["items"]
        }
        following.until("export", count=len(kept) - len(seen))
        following.stop()
        ids = [event.data["export_item_id"] for event in (*seen, *following.events)]
    assert len(runs) == 9
    assert len(ids) == len(set(ids))
    assert set(ids) == kept


# Commands beside a server


def test_commands_ask_the_server_that_holds_the_log(tmp_path: Path) -> None:
    """run, retry and cancel work while it is there; the exit code is that of the outcome."""
    data = tmp_path / "data"
    where = ("--data-dir", str(data))
    with server(data) as running:
        done = perdure("run", "demo.count", "--arg", "to=3", *where, cwd=tmp_path)
        assert (done.returncode, running.url in done.stderr) == (0, True), done.stderr
        failed = perdure("run", "demo.fail", "--json", *where, cwd=tmp_path)
        assert failed.returncode == 1
        run_id = json.loads(failed.stdout.splitlines()[0])["run"]["run_id"]
        again = perdure("retry", run_id, "--json", *where, cwd=tmp_path)
        assert again.returncode == 1
        assert json.loads(again.stdout.splitlines()[-1])["run"]["attempt"] == 2
        long = running.start("count", to=1000)
        running.until(long, "running")
        asked = perdure("cancel", long, "--reason", "enough", *where, cwd=tmp_path)
        assert asked.returncode == 0, asked.stderr
        ended = running.until(long, *ENDED)
        assert (ended["status"], ended["cancel_reason"]) == ("canceled", "enough")
        wrong = perdure("run", "demo.count", "--arg", "to=x", *where, cwd=tmp_path)
        assert wrong.returncode == 2


def test_many_runs_are_changed_by_a_command(tmp_path: Path) -> None:
    """The number is confirmed first; without anybody there it has to be said with --yes."""
    data = tmp_path / "data"
    where = ("--data-dir", str(data))
    with server(data) as running:
        for _ in range(5):
            running.until(running.start("fail"), "failed")
        unsure = perdure("retry", "--status", "failed", *where, cwd=tmp_path)
        assert (unsure.returncode, "Retry 5 runs?" in unsure.stderr) == (2, True)
        sure = perdure("retry", "--status", "failed", "--yes", "--json", *where, cwd=tmp_path)
        told = json.loads(sure.stdout)
        assert told == {"count": 5, "done": 5, "unchanged": 0, "refused": []}
        for _ in range(3):
            running.start("count", to=1000)
        ended = perdure("cancel", "--entry", "count", "--yes", *where, cwd=tmp_path)
        assert "3 runs asked to end." in ended.stdout
        both = perdure("cancel", "0", "--entry", "count", *where, cwd=tmp_path)
        neither = perdure("cancel", *where, cwd=tmp_path)
        assert (both.returncode, neither.returncode) == (2, 2)
    alone = perdure("cancel", "--entry", "count", "--yes", *where, cwd=tmp_path)
    assert (alone.returncode, "perdure serve" in alone.stderr) == (5, True)


def test_an_announcement_that_was_left_behind_is_not_believed(tmp_path: Path) -> None:
    """A crashed server leaves its file; commands then work by themselves, as without it."""
    data = tmp_path / "data"
    with server(data) as running:
        running.signal(signal.SIGKILL)
        running.wait()
    assert (data / "server.json").exists()
    done = perdure("run", "demo.count", "--arg", "to=2", "--data-dir", str(data), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
