"""Entries in processes, whatever they are written in: the same suite for all."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import trio

from perdure.actors.run.events import LogBatch
from perdure.actors.run.views import RunRecord
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.manifest import read_manifest
from perdure.runtime.plugins.plugin import Plugin
from perdure.runtime.runs.requests import AnswerRun, CancelRun, CreateRun, ExportRun, ReadBlob
from tests.repository.tree import ROOT
from tests.runtime.service import Service, next_frame, real_service

NEEDS = {"python": [], "node": ["node"], "shell": ["sh", "jq"]}
LANGUAGES = [
    pytest.param(language, marks=pytest.mark.needs(*needs)) for language, needs in NEEDS.items()
]


@asynccontextmanager
async def example(language: str) -> AsyncIterator[Service]:
    """Run a node with the example plugin of a language."""
    plugin = read_manifest(ROOT / "examples" / f"{language}-plugin")
    async with real_service({plugin.id: plugin}) as s:
        s.plugin_id = plugin.id
        with trio.fail_after(60):
            yield s


def writing(plugin: Plugin, place: Path) -> Plugin:
    """Give a plugin whose processes may write to a place."""
    entries = {
        name: replace(entry, program=entry.program and replace(entry.program, writes=(str(place),)))
        for name, entry in plugin.entries.items()
    }
    return replace(plugin, entries=entries)


async def run(s: Service, entry_id: str, **args: Any) -> RunRecord:
    """Run an entry to its end."""
    return await s.finished(await start(s, entry_id, **args))


async def start(s: Service, entry_id: str, **args: Any) -> str:
    """Start an entry."""
    request = CreateRun(plugin_id=s.plugin_id, entry_id=entry_id, args=args)
    return (await s.create(LOCAL, request))["run"]["run_id"]


async def result(s: Service, record: RunRecord) -> Any:
    """What an entry returned."""
    page = await s.export(LOCAL, ExportRun(run_id=record["run_id"]))
    refs = {ref["export_item_id"] for ref in record["result_refs"]}
    (item,) = [item for item in page["items"] if item["export_item_id"] in refs]
    return item["json"]


async def until_stage(s: Service, run_id: str, stage: str) -> None:
    """Wait until a run says that it is at a stage."""
    following = await s.follow("runs", run_id=run_id)
    while True:
        frame = await next_frame(following)
        if any(change.get("stage") == stage for change in frame["events"]):
            return


def lines(s: Service, run_id: str) -> list[tuple[str, str]]:
    """What a run has logged."""
    batches: list[LogBatch] = s.world.events(run_id, LogBatch)
    return [(line.level, line.text) for batch in batches for line in batch.lines]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_an_entry_gets_its_arguments_and_returns(language: str) -> None:
    """Arguments are checked before a run exists; the value is its result (R5)."""
    async with example(language) as s:
        end = await run(s, "greet", name="w\u00f6rld")
        assert (end["status"], end["error"]) == ("succeeded", None)
        assert await result(s, end) == "hello w\u00f6rld"
        assert await result(s, await run(s, "greet")) == "hello you"
        request = {"plugin_id": s.plugin_id, "entry_id": "greet", "args": {"name": 7}}
        with pytest.raises(Exception, match="name"):
            await s.call("runs.create", request)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_reports_lines_and_exports_arrive(language: str) -> None:
    """As from an inline entry; what is printed is logged (R96, R97, R98, R100)."""
    async with example(language) as s:
        end = await run(s, "report")
        assert (end["status"], end["progress"], end["stage"]) == ("succeeded", 0.5, "working")
        items = (await s.export(LOCAL, ExportRun(run_id=end["run_id"])))["items"]
        assert [(item["type"], item["description"]) for item in items] == [
            ("text", "described"),
            ("json", None),
        ]
        assert items[1]["json"] == {"a": [1, None]}
        assert [ref["export_item_id"] for ref in end["result_refs"]] == [items[0]["export_item_id"]]
        said = lines(s, end["run_id"])
        assert ("info", "a line") in said
        assert ("info", "printed") in said


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("size", [0, 65_536, 65_537, 1_000_000])
async def test_bytes_of_any_size_arrive(language: str, size: int) -> None:
    """A few in the item itself, more as a blob, byte for byte (R115, R116)."""
    async with example(language) as s:
        end = await run(s, "file", size=size)
        assert end["status"] == "succeeded", end["error"]
        (item,) = (await s.export(LOCAL, ExportRun(run_id=end["run_id"])))["items"]
        assert [ref["export_item_id"] for ref in end["result_refs"]] == [item["export_item_id"]]
        assert (item["description"], item["mime"]) == ("a file", "text/plain")
        data = (b"0123456789abcde\n" * (size // 16 + 1))[:size]
        if size <= 65_536:
            assert (item["type"], b64decode(item["binary"])) == ("binary", data)
            return
        digest = sha256(data).hexdigest()
        assert item["binary_url"] == f"/runs/{end['run_id']}/blobs/{digest}"
        assert item["metadata"] == {"size": size, "sha256": digest}
        read = await s.call("blobs.read", ReadBlob(run_id=end["run_id"], sha256=digest))
        assert read["data"] == data


@pytest.mark.parametrize("language", LANGUAGES)
async def test_steps_are_durable_and_tried_again(language: str) -> None:
    """Retries are the server's; the process only does what it is told."""
    async with example(language) as s:
        assert await result(s, await run(s, "steps", n=4)) == [0, 1, 4, 9]
        assert await result(s, await run(s, "flaky")) == "good"


@pytest.mark.parametrize("language", LANGUAGES)
async def test_an_entrys_own_error_is_the_runs(language: str) -> None:
    """Code, message, details and whether to try again (R6, R108, R109)."""
    async with example(language) as s:
        end = await run(s, "fail", code="X")
        assert end["status"] == "failed"
        assert end["error"] == {
            "code": "X",
            "message": "as you wish",
            "details": {"a": 1},
            "retriable": True,
        }


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_question_is_answered(language: str) -> None:
    """By whoever answers it; the entry gets the answer as it was given."""
    async with example(language) as s:
        run_id = await start(s, "question")
        await until_stage(s, run_id, "input_required")
        (question,) = (await s.read(run_id))["questions"]
        answer = AnswerRun(run_id=run_id, question_id=question, answer={"choice": [1]})
        await s.answer(LOCAL, answer)
        end = await s.finished(run_id)
        assert await result(s, end) == {"choice": [1]}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_cancel_request_is_heard(language: str) -> None:
    """Soon enough for an entry that looks (R9, R76, R99, R102)."""
    async with example(language) as s:
        run_id = await start(s, "wait")
        await until_stage(s, run_id, "waiting")
        await s.cancel(LOCAL, CancelRun(run_id=run_id, reason="enough"))
        end = await s.finished(run_id)
        assert (end["status"], end["cancel_reason"]) == ("canceled", "enough")
        assert end["finished_at"] is not None
        assert end["cancel_requested_at"] is not None
        assert end["finished_at"] - end["cancel_requested_at"] < 2


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("perdure.child", {"trio", "asyncio", "sqlite3", "rich", "click", "ssl"}),
        ("perdure.runtime.process.kit_async", {"trio", "sqlite3", "rich", "click"}),
    ],
)
def test_a_process_imports_little(module: str, heavy: set[str]) -> None:
    """It starts quickly because of what it does without, with a plugin in it too."""
    code = f"import sys, {module}\nfrom perdure import *\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert module in imported
    assert imported & heavy == set()


def test_examples_are_plugins() -> None:
    """Each has the same entries."""
    plugins: list[Plugin] = [
        read_manifest(Path(ROOT, "examples", f"{language}-plugin")) for language in NEEDS
    ]
    for plugin in plugins:
        assert sorted(plugin.entries) == [
            "fail",
            "file",
            "flaky",
            "greet",
            "question",
            "report",
            "steps",
            "wait",
        ]
        assert all(entry.where == "process" for entry in plugin.entries.values())
