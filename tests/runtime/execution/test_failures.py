"""What is told of an entry that fails, wherever it runs: the error, and in the log where from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from perdure.actors.run.log_lines import MAX_LINE
from perdure.actors.run.views import RunRecord
from perdure.eventlog import MemoryStore
from perdure.runtime.plugins.plugin import declared
from perdure.runtime.secrets.redaction import REDACTED
from tests.repository.tree import ROOT
from tests.runtime.execution.failing_plugin import PLACES, WAYS, Failing
from tests.runtime.process.test_processes import lines, run
from tests.runtime.secrets import canary
from tests.runtime.secrets.canary import CANARY
from tests.runtime.service import Service, real_service

PLACE = pytest.mark.parametrize("place", PLACES)
STEP = pytest.mark.parametrize("step", [False, True])


@asynccontextmanager
async def failing(**more: Any) -> AsyncIterator[Service]:
    """Run a node with entries that fail."""
    async with real_service({"failing": declared(Failing)}, **more) as s:
        s.plugin_id = "failing"
        with trio.fail_after(60):
            yield s


async def failure(s: Service, place: str, how: str, **more: Any) -> tuple[RunRecord, list[str]]:
    """Let an entry fail; give the run and the errors in its log, which has nothing else."""
    end = await run(s, place, how=how, token=CANARY, **more)
    assert end["status"] == "failed"
    said = lines(s, end["run_id"])
    assert {level for level, _ in said} <= {"error"}
    return end, [text for _, text in said]


def line_of(code: str) -> int:
    """Where a line of the plugin is."""
    source = (ROOT / "tests/runtime/execution/failing_plugin.py").read_text("utf-8")
    return source[: source.index(code)].count("\n") + 1


@PLACE
@STEP
async def test_where_it_failed_is_in_its_log(place: str, step: bool) -> None:
    """One line: a traceback without our own frames. The error names the plugin's line."""
    async with failing() as s:
        end, (trace,) = await failure(s, place, "library", step=step)
    assert end["error"] is not None
    number = line_of('json.loads("{")')
    assert end["error"]["code"] == "PLUGIN_ERROR"
    assert end["error"]["details"] == {"file": "failing_plugin.py", "line": number}
    first, *frames, last = trace.split("\n")
    assert first == "Traceback (most recent call last):"
    assert f'  File "execution/failing_plugin.py", line {number}, in library' in frames
    assert '    json.loads("{")' in frames
    assert last.startswith("json.decoder.JSONDecodeError: Expecting property name")
    assert not [frame for frame in frames if "current_run" in frame or "kit" in frame]
    assert str(ROOT) not in trace


@PLACE
async def test_what_led_to_it_is_told_first(place: str) -> None:
    """A chain of errors reads from its beginning to its end."""
    async with failing() as s:
        _, (trace,) = await failure(s, place, "raised")
    assert trace.index(f"KeyError: '{REDACTED}'") < trace.index(f"ValueError: with {REDACTED}")
    assert trace.count("Traceback") == 2


@PLACE
@STEP
async def test_an_error_that_is_meant_needs_no_traceback(place: str, step: bool) -> None:
    """A plugin that says what is wrong has said it."""
    async with failing() as s:
        end, said = await failure(s, place, "purpose", step=step)
    assert end["error"] is not None
    assert (end["error"]["code"], said) == ("MINE", [])


@PLACE
@STEP
@pytest.mark.parametrize("how", ["unspeakable", "exits"])
async def test_an_error_without_a_message_is_told_by_its_type(
    place: str, step: bool, how: str
) -> None:
    """Whatever happens when it is asked for one: it is the plugin that has failed, and not we."""
    async with failing() as s:
        end, (trace,) = await failure(s, place, how, step=step)
    name = {"unspeakable": "Unspeakable", "exits": "Exits"}[how]
    assert end["error"] is not None
    assert end["error"]["code"] == "PLUGIN_ERROR"
    assert end["error"]["message"] == (f"{name}: (the text of this {name} could not be made)")
    assert name in trace


@PLACE
async def test_a_message_that_cannot_be_made_keeps_its_code(place: str) -> None:
    """What else the error says is told."""
    async with failing() as s:
        end, _ = await failure(s, place, "odd")
    assert end["error"] is not None
    assert end["error"]["code"] == "MINE"
    assert "could not be made" in end["error"]["message"]


@PLACE
@STEP
async def test_no_traceback_tells_a_secret(
    caplog: pytest.LogCaptureFixture, place: str, step: bool
) -> None:
    """Not in messages, causes, groups and notes, nor where it is cut; and none is too long."""
    store = MemoryStore()
    async with failing(store=store) as s:
        for how in WAYS:
            end, said = await failure(s, place, how, step=step)
            assert all(len(text) <= MAX_LINE for text in said)
            assert how not in {"raised", "several", "noted"} or REDACTED in "".join(said), end
    assert canary.in_log(store) == []
    assert CANARY[:8] not in repr([tuple(record) for record in store._records])
    assert canary.in_logging(caplog.records, caplog.text) == []
