"""What entries print in the process of their host is in the logs of their runs, and there only.

Warnings, and exceptions that end a thread, are tried with a real server: pytest takes them away.
"""

from __future__ import annotations

import _thread
import logging
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.events import LogBatch
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.secrets.logged_run import LONGEST, MAX_WAITING, LoggedRun, entry_at_work
from perdure.runtime.secrets.printed_output import output_of_runs
from perdure.runtime.secrets.redaction import Redactor
from perdure.runtime.secrets.run_logging import logging_of_runs
from tests.runtime.execution.test_current_run import PLUGINS, Scripted
from tests.runtime.service import Service, service

SECRET = "canary-value"  # noqa: S105 - the point


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Whatever a test does, the process prints and starts threads as before."""
    before = (sys.stdout, sys.stderr, threading.Thread.start, ThreadPoolExecutor.submit)
    yield
    assert (
        sys.stdout,
        sys.stderr,
        threading.Thread.start,
        ThreadPoolExecutor.submit,
    ) == before


def lines(s: Service, run_id: str) -> list[tuple[str, str]]:
    """The log of a run, as level and text."""
    batches: list[LogBatch] = s.world.events(run_id, LogBatch)
    return [(line.level, line.text) for batch in batches for line in batch.lines]


class Printing:
    """The entry of a run with a secret, at work in an event loop of its own."""

    def __init__(self) -> None:
        """Nothing was said yet."""
        self.lines: list[tuple[str, str]] = []
        self.redactor = Redactor()
        self.redactor.register(SECRET)

    def run(self, body: Any) -> list[tuple[str, str]]:
        """Let a plain function be the entry; give the lines of its run."""

        async def main() -> None:
            loop = trio.lowlevel.current_trio_token()
            log = lambda level, text: self.lines.append((level, self.redactor.text(text)))  # noqa: E731
            with entry_at_work(LoggedRun("r", None, self.redactor, log, loop)):
                body()

        with logging_of_runs(), output_of_runs():
            trio.run(main)
        return self.lines


async def test_what_an_entry_prints_is_in_the_log_of_its_run(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """From tasks and threads of each of several runs; not on the host's output (R119)."""
    pool = ThreadPoolExecutor(1)  # which all of them share

    async def body(ctx: RunContext) -> None:
        print("task", ctx.run.id)  # noqa: T201
        await trio.sleep(1)
        print("worker", ctx.run.id, file=sys.stderr)  # noqa: T201
        await trio.to_thread.run_sync(print, "thread of trio", ctx.run.id)
        thread = threading.Thread(target=print, args=("thread", ctx.run.id))
        thread.start()
        thread.join()
        pool.submit(print, "pool", ctx.run.id).result()
        sys.stdout.write("no end")

    Scripted.body = staticmethod(body)
    with output_of_runs():
        async with service(None, PLUGINS) as s:
            run_ids = [(await s.start("go"))["run_id"] for _ in range(3)]
            for run_id in run_ids:
                await s.finished(run_id)
                assert lines(s, run_id) == [
                    ("info", f"task {run_id}"),
                    ("warning", f"worker {run_id}"),
                    ("info", f"thread of trio {run_id}"),
                    ("info", f"thread {run_id}"),
                    ("info", f"pool {run_id}"),
                    ("info", "no end"),
                ]
        pool.shutdown()
        print("of the host")  # noqa: T201
    assert capsys.readouterr() == ("of the host\n", "")


def test_secrets_are_taken_out_of_whole_lines(capfd: pytest.CaptureFixture[str]) -> None:
    """However they are printed: in pieces, as bytes, at the cut end of a long line."""

    def body() -> None:
        sys.stdout.write(SECRET[:5])
        sys.stdout.writelines([SECRET[5:], "\n"])
        sys.stdout.buffer.write(f"bytes {SECRET}\n".encode())
        print("x" * (LONGEST - 5) + SECRET)  # noqa: T201

    said = Printing().run(body)
    assert said[:2] == [("info", "[redacted]"), ("info", "bytes [redacted]")]
    assert "canary" not in str(said)
    assert len(said[-1][1]) <= LONGEST
    assert capfd.readouterr() == ("", "")


def test_what_others_print_is_printed_without_secrets_of_runs_at_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By a thread that was there before, for example."""
    pool = ThreadPoolExecutor(1)
    pool.submit(print, "before").result()
    submit = pool.submit  # as it was, so that nobody knows for whom

    def body() -> None:
        submit(print, f"a stray {SECRET}").result()

    assert Printing().run(body) == []
    pool.shutdown()
    assert capsys.readouterr().out == "before\na stray [redacted]\n"


def test_what_a_thread_that_nobody_knows_logs_has_no_secrets_of_runs_at_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that a library in C has started, for example."""
    logged = threading.Event()

    def log() -> None:
        logging.getLogger("somebody").warning("a stray %s", SECRET)
        logged.set()

    def body() -> None:
        _thread.start_new_thread(log, ())
        assert logged.wait(10)

    with logging_of_runs():
        Printing().run(body)
    assert [record.getMessage() for record in caplog.records] == ["a stray [redacted]"]


def test_a_thread_that_prints_without_end_takes_no_more_room() -> None:
    """What the event loop has not taken is bounded; what is dropped is told."""

    def body() -> None:
        def flood() -> None:
            for number in range(MAX_WAITING + 10):
                print(number)  # noqa: T201

        thread = threading.Thread(target=flood)
        thread.start()
        thread.join()  # the loop takes nothing meanwhile

    said = Printing().run(body)
    assert len(said) == MAX_WAITING + 1
    assert said[-1] == ("warning", "10 more lines of threads were dropped")


def test_a_stream_is_otherwise_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    """For the host and for entries: what it can, and what it refuses."""

    def body() -> None:
        assert sys.stdout.encoding == encoding
        sys.stdout.buffer.flush()
        with pytest.raises(TypeError):
            sys.stdout.write(b"bytes")  # type: ignore[arg-type]
        sys.stdout.close()  # which is the host's own
        assert not sys.stdout.closed

    encoding = sys.stdout.encoding
    assert Printing().run(body) == []
    with output_of_runs(), output_of_runs():
        sys.stderr.write("once")
    assert capsys.readouterr().err == "once"


def test_who_puts_another_stream_in_place_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what was put there is taken away."""
    own = sys.stdout
    with output_of_runs():
        monkeypatch.setattr(sys, "stdout", own)
        monkeypatch.setattr(sys, "stderr", None)
    assert (sys.stdout, sys.stderr) == (own, None)
    with output_of_runs():  # a process may be started without
        assert sys.stderr is None
    monkeypatch.undo()
