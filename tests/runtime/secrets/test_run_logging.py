from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any
from unittest import mock

import pytest
import trio
from trio.testing import MockClock

from perdure.actors.run.events import LogBatch, RunCreated
from perdure.actors.run.kind import RUN_KIND
from perdure.actors.run.views import log_line
from perdure.eventlog.errors import StoreFailed
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.run_context import RunContext
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import GetRun
from perdure.runtime.secrets.logged_run import LoggedRun, about_run, work_for
from perdure.runtime.secrets.redaction import Redactor
from perdure.runtime.secrets.run_logging import logging_of_runs
from tests.runtime.execution.test_current_run import PLUGINS, Scripted, items, ran
from tests.runtime.service import refused, service

log = logging.getLogger("somebody.elses")


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Whatever a test does, logging is as it was before."""
    before = (logging.getLogRecordFactory(), list(logging.root.handlers), logging.root.level)
    yield
    assert (
        logging.getLogRecordFactory(),
        list(logging.root.handlers),
        logging.root.level,
    ) == before


async def test_every_line_that_an_entry_logs_names_its_run(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Through ctx.run and through logging, in tasks and threads, with the trace (R119, R120)."""

    async def body(ctx: RunContext) -> None:
        ctx.run.log("one")
        log.info("two %s", "parts")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_a_task)
        await trio.to_thread.run_sync(log.warning, "from a thread")
        await trio.sleep(1)

    async def in_a_task() -> None:
        try:
            int("wrong")
        except ValueError:
            log.exception("failed")

    Scripted.body = staticmethod(body)
    async with service(None, PLUGINS) as s:
        run = await s.start("go", trace_id="tr1")
        await s.finished(run["run_id"])
        (created,) = s.world.events(run["run_id"], RunCreated)
        batches = s.world.events(run["run_id"], LogBatch)
    lines = [log_line(created, line) for batch in batches for line in batch.lines]
    assert {(line["run_id"], line["trace_id"]) for line in lines} == {(run["run_id"], "tr1")}
    assert [(line["level"], line["text"].partition("\n")[0]) for line in lines] == [
        ("info", "one"),
        ("info", "two parts"),
        ("error", "failed"),
        ("warning", "from a thread"),
    ]
    assert lines[2]["text"].endswith("'wrong'")
    named = [vars(record) for record in caplog.records if record.name == log.name]
    assert [(r["run_id"], r["trace_id"]) for r in named] == [(run["run_id"], "tr1")] * 3


async def test_runs_do_not_mix_their_lines(autojump_clock: MockClock) -> None:
    """Each has its own, however many run at once (R119)."""

    async def body(ctx: RunContext) -> None:
        for _ in range(3):
            log.info("%s", ctx.run.id)
            await trio.sleep(0.1)

    Scripted.body = staticmethod(body)
    async with service(None, PLUGINS) as s:
        run_ids = [(await s.start("go"))["run_id"] for _ in range(5)]
        for run_id in run_ids:
            await s.finished(run_id)
            batches = s.world.events(run_id, LogBatch)
            assert [line.text for batch in batches for line in batch.lines] == [run_id] * 3


async def test_exports_carry_the_trace(autojump_clock: MockClock) -> None:
    """In their metadata, unless the entry has put something there itself (R120)."""

    async def body(ctx: RunContext) -> str:
        await ctx.run.export_text("one")
        await ctx.run.export_text("two", metadata={"trace_id": "mine", "more": 1})
        return "three"

    Scripted.body = staticmethod(body)
    async with service(None, PLUGINS) as s:
        run = await s.start("go", trace_id="tr1")
        await s.finished(run["run_id"])
        found = [item["metadata"] for item in await items(s, run["run_id"])]
    assert found == [{"trace_id": "tr1"}, {"trace_id": "mine", "more": 1}, {"trace_id": "tr1"}]
    assert (await ran(body)).items[0]["metadata"] == {}


async def test_what_the_runtime_logs_about_a_run_names_it(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A host that fails at a run, an operation on it, an actor that crashes (R119, R120)."""

    async def body(ctx: RunContext) -> None:
        await trio.sleep(1)

    Scripted.body = staticmethod(body)
    async with service(None, PLUGINS) as s:
        broken = mock.patch(
            "perdure.runtime.execution.executor.Execution", side_effect=ZeroDivisionError
        )
        with broken:
            run = await s.start("go", trace_id="tr1")
            await s.finished(run["run_id"])
        (record,) = [r for r in caplog.records if r.name == "perdure.host"]
        assert (vars(record)["run_id"], vars(record)["trace_id"]) == (run["run_id"], "tr1")
        caplog.clear()
        failing = mock.patch.object(runs_of(s.node).runs, "_reader", None)
        with failing:
            call = s.node.operations.call
            request = {"run_id": run["run_id"]}
            await refused("INTERNAL", lambda: call(LOCAL, "runs.get", request))
        (record,) = [r for r in caplog.records if r.name == "perdure.operations"]
        assert vars(record)["run_id"] == run["run_id"]
        runs_of(s.node).executor.runs._crashed(f"run/{run['run_id']}", StoreFailed("x"))
        runs_of(s.node).executor.runs._crashed("session/1", StoreFailed("x"))
        found = [vars(r).get("run_id") for r in caplog.records if r.name == "perdure.actors"]
        assert found == [run["run_id"], None]


def test_streams_of_runs_are_known() -> None:
    """And others are not."""
    assert (RUN_KIND.id_of("run/1"), RUN_KIND.id_of("session/1")) == ("1", None)


def test_a_record_that_cannot_be_formatted_is_redacted_all_the_same() -> None:
    """With what it was to be made of, and without raising where it is logged."""
    redactor = Redactor()
    redactor.register("canary-value")
    made: list[str] = []

    async def main() -> None:
        work_for(LoggedRun("r", None, redactor, lambda _, text: made.append(text)))
        log.warning("%s and %s", *["canary-value"])
        log.warning(ValueError("canary-value"))

    with logging_of_runs():
        trio.run(main)
    assert made == ["%s and %s ('[redacted]',)", "[redacted]"]


def test_an_entry_may_name_a_run_itself(caplog: pytest.LogCaptureFixture) -> None:
    """What it says in extra stays; secrets in it do not."""
    redactor = Redactor()
    redactor.register("canary-value")

    async def main() -> None:
        work_for(LoggedRun("r", "t", redactor))
        log.warning("text", extra={"run_id": "mine", "header": {"a": "canary-value"}})

    with logging_of_runs():
        trio.run(main)
    (record,) = caplog.records
    assert (vars(record)["run_id"], vars(record)["trace_id"]) == ("mine", "t")
    assert vars(record)["header"] == {"a": "[redacted]"}


def test_a_thread_that_outlives_everything_does_no_harm() -> None:
    """Its lines go nowhere."""
    lines: list[Any] = []
    go = threading.Event()
    threads: list[threading.Thread] = []

    async def main() -> None:
        loop = trio.lowlevel.current_trio_token()
        work_for(LoggedRun("r", None, None, lambda *line: lines.append(line), loop))
        context = copy_context()

        def late() -> None:
            go.wait()
            context.run(log.warning, "late")

        threads.append(threading.Thread(target=late))
        threads[0].start()

    with logging_of_runs():
        trio.run(main)
        go.set()
        threads[0].join()
    assert lines == []


def test_speaking_of_no_run_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """As when an operation is about none."""
    with logging_of_runs(), about_run(None):
        log.warning("text")
    assert "run_id" not in vars(caplog.records[0])


def test_who_has_no_handlers_hears_warnings_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    """Python's last resort still works, for what is about no run."""
    with mock.patch.object(logging.root, "handlers", []), logging_of_runs():
        log.warning("heard")
    assert capsys.readouterr().err == "heard\n"


async def test_two_hosts_in_one_process_share_it(autojump_clock: MockClock) -> None:
    """Whichever ends first."""

    async def body(ctx: RunContext) -> None:
        log.info("line")

    async with service(None, PLUGINS) as s:
        async with service(None, PLUGINS):
            pass
        Scripted.body = staticmethod(body)
        run = await s.start("go")
        await s.finished(run["run_id"])
        assert len(s.world.events(run["run_id"], LogBatch)) == 1
        assert (await s.get(LOCAL, GetRun(run_id=run["run_id"])))["run"]["status"] == "succeeded"
