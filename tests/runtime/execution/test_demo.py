from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure import DeclarationError, RunContext, entry, plugin
from perdure.demo import Demo
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.runs.requests import AnswerRun, CancelRun, CreateRun, ExportRun, GetRun
from tests.runtime.service import Service, service


async def start(s: Service, entry_id: str, **args: Any) -> str:
    """Start an entry of the demo."""
    s.world.executor.use({"demo": declared(Demo)})
    request = CreateRun(plugin_id="demo", entry_id=entry_id, args=args)
    return str((await s.create(LOCAL, request))["run"]["run_id"])


async def test_count_reports_and_exports_each_tenth(autojump_clock: MockClock) -> None:
    """Progress ends at one, ten lines are exported, the number is the result."""
    async with service() as s:
        run_id = await start(s, "count", to=100, delay=0.05)
        end = await s.finished(run_id)
        assert (end["status"], end["progress"], end["message"]) == ("succeeded", 1.0, "100 of 100")
        items = (await s.export(LOCAL, ExportRun(run_id=run_id)))["items"]
        assert [item["text"] for item in items[:-1]] == [f"counted to {n}0" for n in range(1, 11)]
        assert items[-1]["json"] == 100


async def test_count_can_be_canceled(autojump_clock: MockClock) -> None:
    """It looks for a cancel request at every number."""
    async with service() as s:
        run_id = await start(s, "count", to=100, delay=1)
        await trio.sleep(5.5)
        await s.cancel(LOCAL, CancelRun(run_id=run_id))
        assert (await s.finished(run_id))["status"] == "canceled"


async def test_fail_fails_with_its_code(autojump_clock: MockClock) -> None:
    """As it was asked to."""
    async with service() as s:
        end = await s.finished(await start(s, "fail", code="MINE"))
        assert end["error"] is not None
        assert end["error"]["code"] == "MINE"


async def test_spam_leaves_a_small_log(autojump_clock: MockClock) -> None:
    """Ten thousand reports and lines are a handful of events."""
    async with service() as s:
        run_id = await start(s, "spam", n=10_000)
        await s.finished(run_id)
        folded = await s.get(LOCAL, GetRun(run_id=run_id))
        assert folded["run"]["progress"] == 1.0
        assert s.world.store.stream_state(f"run/{run_id}").version < 60


async def test_ask_waits_for_an_answer(autojump_clock: MockClock) -> None:
    """And returns it."""
    async with service() as s:
        run_id = await start(s, "ask")
        await trio.sleep(1)
        (question,) = (await s.read(run_id))["questions"]
        await s.answer(LOCAL, AnswerRun(run_id=run_id, question_id=question, answer="yes"))
        await s.finished(run_id)
        (item,) = (await s.export(LOCAL, ExportRun(run_id=run_id)))["items"]
        assert item["json"] == "yes"


def test_the_demo_is_written_against_the_public_names_only() -> None:
    """A plugin author can do all of this."""
    probe = (
        "import ast, sys, inspect, perdure.demo;"
        "tree = ast.parse(inspect.getsource(perdure.demo));"
        "names = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)};"
        "sys.exit(not names <= {'__future__', 'collections.abc', 'typing', 'msgspec', 'perdure'})"
    )
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def test_importing_perdure_is_light() -> None:
    """What plugin authors import brings neither an event loop nor a database."""
    probe = (
        "import sys, perdure;"
        "heavy = {'trio', 'sqlite3', 'eventsourcing', 'cbor2', 'cryptography'};"
        "sys.exit(bool(heavy & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def test_a_declaration_that_cannot_work_says_what_to_do() -> None:
    """Mistakes show where they are made."""
    with pytest.raises(DeclarationError, match="has no @entry"):

        @plugin("empty")
        class _Empty:
            pass

    with pytest.raises(DeclarationError, match="'to' has no type"):

        @plugin("untyped")
        class _Untyped:
            @entry
            async def count(self, ctx: RunContext, to) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
                pass

    with pytest.raises(DeclarationError, match="argument 'tool' has a type that JSON has no"):

        @plugin("foreign")
        class _Foreign:
            @entry
            async def use(self, ctx: RunContext, tool: subprocess.Popen[bytes]) -> None:
                pass

    with pytest.raises(DeclarationError, match="is not async, so it cannot run inline"):

        @plugin("sync")
        class _Sync:
            @entry(where="inline")
            def count(self, ctx: RunContext) -> None:
                pass

    with pytest.raises(DeclarationError, match="a process, which cannot find a class inside"):

        @plugin("hidden")
        class _Hidden:
            @entry
            def count(self, ctx: RunContext) -> None:
                pass

    with pytest.raises(DeclarationError, match="is async: it runs inline, or in a process"):

        @plugin("thread")
        class _Thread:
            @entry(where="thread")
            async def count(self, ctx: RunContext) -> None:
                pass


def test_the_limits_of_arguments_are_checked() -> None:
    """A type says more than its name: what it is annotated with counts too."""
    count = declared(Demo).entries["count"]
    assert count.check({"to": 1}) == {"to": 1, "delay": 0.1}
    with pytest.raises(ValueError, match=">= 1"):
        count.check({"to": 0})
    assert count.schema["properties"]["to"]["minimum"] == 1
