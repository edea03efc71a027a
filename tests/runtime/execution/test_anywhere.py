"""What the Run protocol promises an entry holds wherever it is executed."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import trio

from perdure.actors.run.events import LogBatch, RunCreated
from perdure.actors.run.views import RunRecord, log_line
from perdure.runtime.kernel.principal import LOCAL, Principal
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.part import runs_of
from perdure.runtime.runs.requests import AnswerRun, CancelRun, CreateRun, ListRuns, RetryRun
from tests.runtime.execution.anywhere_plugin import PLACES, Anywhere
from tests.runtime.execution.test_current_run import items
from tests.runtime.process.test_processes import lines, result, until_stage
from tests.runtime.service import Service, next_frame, real_service, refused

ANYWHERE = pytest.mark.parametrize("place", PLACES)


@asynccontextmanager
async def anywhere(**more: Any) -> AsyncIterator[Service]:
    """Run a node with the plugin."""
    async with real_service({"anywhere": declared(Anywhere)}, **more) as s:
        s.plugin_id = "anywhere"
        with trio.fail_after(60):
            yield s


async def begin(
    s: Service, place: str, what: str | None, principal: Principal = LOCAL, **args: Any
) -> str:
    """Start a body somewhere."""
    more = {name: args.pop(name) for name in ("timeout", "trace_id") if name in args}
    passed = {} if what is None else {"what": what, "args": args}
    request = CreateRun(plugin_id="anywhere", entry_id=place, args=passed, **more)
    return (await s.create(principal, request))["run"]["run_id"]


async def run(s: Service, place: str, what: str | None, **args: Any) -> RunRecord:
    """Execute a body somewhere to its end."""
    return await s.finished(await begin(s, place, what, **args))


async def pid_of(s: Service, run_id: str) -> int:
    """Wait until a run has told the id of its process."""
    following = await s.follow("runs", run_id=run_id)
    while True:
        for change in (await next_frame(following))["events"]:
            if str(change.get("stage")).startswith("pid "):
                return int(str(change["stage"]).removeprefix("pid "))


def workers() -> list[str]:
    """The processes of the plugin that belong to this one: other tests run beside it."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may be gone
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            is_ours = command.startswith(f"{sys.executable} -m ") and "anywhere_plugin:" in command
            if is_ours and os.getpid() in ancestors(int(path.name)):
                found.append(command)
    return found


def ancestors(pid: int) -> Iterator[int]:
    """The process that has started one, and those above it."""
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1])
        yield pid


@ANYWHERE
async def test_an_entry_knows_its_run(place: str) -> None:
    """In its threads too (R96)."""
    async with anywhere() as s:
        end = await run(s, place, "who", trace_id="tr1")
        run_id = end["run_id"]
        assert await result(s, end) == [run_id, run_id, 1, run_id, "tr1"]


@ANYWHERE
async def test_reports_are_visible_while_it_runs(place: str) -> None:
    """Stage and progress, in the record and on the channel; the status stays (R97, R100)."""
    async with anywhere() as s:
        run_id = await begin(s, place, "reports")
        following = await s.follow("runs", run_id=run_id)
        changes: list[Any] = []
        while not (changes and changes[-1].get("progress") == 0.4):
            changes.extend((await next_frame(following))["events"])
        staged = [change for change in changes if change.get("stage") == "loading"]
        assert (staged[0]["message"], staged[0]["status"]) == ("the first part", "running")
        record = await s.read(run_id)
        assert (record["progress"], record["status"]) == (0.4, "running")
        assert "x" in [change.get("message") for change in changes]


@ANYWHERE
async def test_silence_is_null(place: str) -> None:
    """No progress is null to the end, no exports are no result (R104, R105)."""
    async with anywhere() as s:
        end = await run(s, place, "nothing")
        assert (end["status"], end["progress"], end["result_refs"]) == ("succeeded", None, [])


@ANYWHERE
async def test_each_export_is_one_item(place: str) -> None:
    """Of its type, with its description, in order (R98, R101)."""
    async with anywhere() as s:
        end = await run(s, place, "exports")
        assert end["status"] == "succeeded", end["error"]
        found = await items(s, end["run_id"])
        types = ["text", "url", "binary_url", "json", "url", "text"]
        assert [item["type"] for item in found] == types
        assert {item["description"] for item in found} == {"described"}
        assert found[4]["metadata"]["ref"] == found[0]["export_item_id"]


@ANYWHERE
async def test_references_lead_to_what_the_owner_has(place: str) -> None:
    """To an item of another run of the same owner; a stranger's, or none, is refused (R101)."""
    async with anywhere() as s:
        first = (await items(s, (await run(s, place, "fails"))["run_id"]))[0]["export_item_id"]
        end = await run(s, place, "refers", ref=first)
        (item,) = await items(s, end["run_id"])
        assert (item["type"], item["url"]) == ("url", f"perdure:export/{first}")
        assert (await run(s, place, "refers", ref="nobody.1"))["status"] == "failed"
        stranger = await begin(s, place, "refers", Principal("other", "other"), ref=first)
        with trio.fail_after(20):
            state = (await runs_of(s.node).executor.end_of(stranger)).state
        assert state.error is not None
        assert state.error.code == "VALIDATION_ERROR"


@ANYWHERE
async def test_an_entry_speaks_for_its_own_run_only(place: str) -> None:
    """An item of another run cannot be its result (R107)."""
    async with anywhere() as s:
        other = await run(s, place, "fails")
        before = await s.read(other["run_id"])
        ref = (await items(s, other["run_id"]))[0]["export_item_id"]
        end = await run(s, place, "claims", ref=ref)
        assert end["status"] == "failed"
        assert await s.read(other["run_id"]) == before


@ANYWHERE
@pytest.mark.parametrize("how", ["raise", "group", "step"])
async def test_a_cancel_request_is_seen_in_time_and_obeyed(place: str, how: str) -> None:
    """Within 250 ms; canceled, not failed, in a group and in a step too (R99, R102, R103)."""
    async with anywhere() as s:
        run_id = await begin(s, place, "obeys", how=how)
        await until_stage(s, run_id, "waiting")
        await s.cancel(LOCAL, CancelRun(run_id=run_id, reason="enough"))
        end = await s.finished(run_id)
        assert (end["status"], end["cancel_reason"]) == ("canceled", "enough"), end["error"]
        (seen,) = [text for _, text in lines(s, run_id) if text.startswith("seen at")]
        assert end["cancel_requested_at"] is not None
        asked = end["cancel_requested_at"] * 1e9
        assert int(seen.removeprefix("seen at ")) - asked < 250e6


@ANYWHERE
async def test_an_error_alone_in_a_group_is_the_runs(place: str) -> None:
    """Task groups wrap what is raised in them; its code is there to be relied on."""
    async with anywhere() as s:
        error = (await run(s, place, "fails_in_a_group"))["error"]
        assert error is not None
        assert (error["code"], error["message"]) == ("MINE", "no")


@ANYWHERE
async def test_a_step_raises_the_same_everywhere(place: str) -> None:
    """What has failed for good with all that it said, and what cannot be recorded."""
    async with anywhere() as s:
        failed, misused = await result(s, await run(s, place, "missteps"))
        assert failed == ["FailedStep", "MINE: no", True]
        assert misused[0] == "StepError"
        assert misused[1].startswith("step 's' was used before in this run")


@pytest.mark.parametrize("place", [place for place in PLACES if place != "threaded"])
async def test_a_timeout_stops_the_work(place: str) -> None:
    """The run is over, and so is its process (R7)."""
    async with anywhere(cancel_grace=0.2) as s:
        end = await run(s, place, "late", timeout=2.0)
        assert end["error"] is not None
        assert (end["status"], end["error"]["code"]) == ("timeout", "TIMEOUT")
        await runs_of(s.node).executor.settled()
        assert workers() == []


@ANYWHERE
async def test_bytes_in_an_item_are_bounded(place: str) -> None:
    """At 65,536; one more is refused at the call (R115, R116)."""
    async with anywhere() as s:
        assert await result(s, await run(s, place, "binary", size=65_536)) == "fine"
        refusal = await result(s, await run(s, place, "binary", size=65_537))
        assert refusal == "PAYLOAD_TOO_LARGE"


@ANYWHERE
async def test_every_line_and_item_names_run_and_trace(place: str) -> None:
    """Said, or logged with the standard module (R119, R120)."""
    async with anywhere() as s:
        end = await run(s, place, "logs", trace_id="tr1")
        assert end["status"] == "succeeded", end["error"]
        (created,) = s.world.events(end["run_id"], RunCreated)
        batches: list[LogBatch] = s.world.events(end["run_id"], LogBatch)
        logged = [log_line(created, line) for batch in batches for line in batch.lines]
        assert {(line["run_id"], line["trace_id"]) for line in logged} == {(end["run_id"], "tr1")}
        said = {(line["level"], line["text"].partition("\n")[0]) for line in logged}
        assert said == {
            ("info", "said"),
            ("info", "logged so"),
            ("error", "failed"),
            ("warning", "from a thread"),
        }
        assert any(line["text"].endswith("KeyError: 'LOST'") for line in logged)
        found = await items(s, end["run_id"])
        assert [item["metadata"]["trace_id"] for item in found] == ["tr1"] * 3


@ANYWHERE
async def test_a_thread_that_an_entry_starts_logs_for_its_run(place: str) -> None:
    """Each of its lines is in the log of the run."""
    async with anywhere() as s:
        end = await run(s, place, "logs", trace_id="tr1")
        batches: list[LogBatch] = s.world.events(end["run_id"], LogBatch)
        said = [(line.level, line.text) for batch in batches for line in batch.lines]
        assert ("warning", "from a thread") in said


@ANYWHERE
async def test_attempts_are_of_one_root(place: str) -> None:
    """Each has its number, and its items are its own (R121)."""
    async with anywhere() as s:
        first = await run(s, place, "fails")
        again = await s.retry(LOCAL, RetryRun(run_id=first["run_id"]))
        second = await s.finished(again["run"]["run_id"])
        assert second["root_run_id"] == first["root_run_id"] == first["run_id"]
        assert (first["attempt"], second["attempt"]) == (1, 2)
        for record in (first, second):
            (item,) = await items(s, record["run_id"])
            assert (item["run_id"], item["text"]) == (
                record["run_id"],
                f"attempt {record['attempt']}",
            )
        listed = (await s.list(LOCAL, ListRuns(root_run_id=first["run_id"])))["runs"]
        assert {row["run_id"] for row in listed} == {first["run_id"], second["run_id"]}


@ANYWHERE
async def test_a_file_is_brought_to_a_run(place: str) -> None:
    """While it runs; the entry names it, and the same bytes are read back (R127)."""
    data = bytes(range(256)) * 1000

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 50_000):
            yield data[start : start + 50_000]

    async with anywhere() as s:
        run_id = await begin(s, place, "takes")
        await until_stage(s, run_id, "input_required")
        opened = await s.call("blobs.create_upload", {"run_id": run_id})
        brought = await runs_of(s.node).uploads.receive(LOCAL, opened["upload_id"], pieces())
        (question,) = (await s.read(run_id))["questions"]
        answer = AnswerRun(run_id=run_id, question_id=question, answer=brought["binary_url"])
        await s.answer(LOCAL, answer)
        assert (await s.finished(run_id))["status"] == "succeeded"
        (item,) = await items(s, run_id)
        assert item["binary_url"] == brought["binary_url"]
        digest = sha256(data).hexdigest()
        read = await s.call("blobs.read", {"run_id": run_id, "sha256": digest})
        assert read["data"] == data
        upload = {"run_id": run_id}
        await refused("RUN_NOT_RUNNING", lambda: s.call("blobs.create_upload", upload))


# What only a process can do


async def test_an_awaited_entry_may_wait_for_much_at_once() -> None:
    """Questions that are open keep no other call from getting through."""
    async with anywhere() as s:
        run_id = await begin(s, "waits_for_much", None)
        following = await s.follow("runs", run_id=run_id)
        with trio.fail_after(20):
            while len(questions := (await s.read(run_id))["questions"]) < 40:
                await next_frame(following)
        for question in questions:
            request = AnswerRun(run_id=run_id, question_id=question, answer=question)
            await s.answer(LOCAL, request)
        with trio.fail_after(20):
            assert sorted(await result(s, await s.finished(run_id))) == questions


async def test_an_awaited_entry_may_give_up_a_call() -> None:
    """It goes on at once, and so does its process: the next run is executed there."""
    async with anywhere() as s:
        for _ in range(2):
            with trio.fail_after(20):
                assert await result(s, await run(s, "gives_up", None)) == "gave up"
        assert len(workers()) == 1


async def test_an_entry_that_never_yields_is_killed() -> None:
    """And other runs go on meanwhile (R106)."""
    async with anywhere(cancel_grace=0.2) as s:
        run_id = await begin(s, "spins", None)
        await pid_of(s, run_id)
        await s.cancel(LOCAL, CancelRun(run_id=run_id))
        assert (await run(s, "plain", "nothing"))["status"] == "succeeded"
        assert (await s.finished(run_id))["status"] == "canceled"
        await runs_of(s.node).executor.settled()
        assert len(workers()) == 1  # the one that is warm


async def test_a_process_that_dies_is_missed_whoever_holds_its_pipe() -> None:
    """Also when it leaves something behind; retriable, within a second (R110, R111)."""
    async with anywhere(cancel_grace=0.1) as s:
        await run(s, "plain", "nothing")
        begun = trio.current_time()
        end = await run(s, "leaves_a_fork", None)
        assert end["error"] is not None
        assert (end["error"]["code"], end["error"]["retriable"]) == ("PLUGIN_CRASHED", True)
        assert trio.current_time() - begun < 1


async def test_a_run_that_is_over_is_spoken_of_no_more() -> None:
    """A thread that a process goes on with cannot reach the next run (R107)."""
    async with anywhere() as s:
        first = await run(s, "lingers", None)
        second = await run(s, "plain", "logs")
        assert second["progress"] is None
        assert (await s.read(first["run_id"])) == first
