"""What is told of an error: the plugin's frames of its traceback, and what to write instead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from perdure.runtime.plugins.error_text import told, traced
from perdure.runtime.plugins.run_context import RunContext
from tests.runtime.execution.test_current_run import ran


def raised_in(*modules: str) -> Exception:
    """An error that came through a function of each of these modules, the first called first."""
    body, names = "raise ValueError('wrong')", dict[str, Any]()
    for module in reversed(modules):
        names = {"__name__": module, "call": names.get("here")}
        file = f"/somewhere/{module.replace('.', '/')}.py"
        exec(compile(f"def here():\n    {body}", file, "exec"), names)  # noqa: S102 - our own text
        body = "call()"
    with pytest.raises(ValueError, match="wrong") as caught:
        names["here"]()
    traceback = caught.value.__traceback__
    return caught.value.with_traceback(traceback and traceback.tb_next)  # without our own line


@pytest.mark.parametrize("theirs", ["runtime.orders", "actors.cast", "eventlog", "perdure.demo"])
def test_a_plugin_may_lie_in_a_package_of_any_name(theirs: str) -> None:
    """Only perdure.runtime, perdure.actors and perdure.eventlog are left out as Perdure's own."""
    error = raised_in("perdure.runtime.execution.current_run", theirs, "perdure.eventlog.log")
    trace = traced(error)
    assert trace is not None
    assert theirs.rpartition(".")[2] + '.py", line 2, in here' in trace
    assert "current_run.py" not in trace
    assert "log.py" not in trace.replace("eventlog.py", "")
    assert told(error)[1] == {"file": theirs.rpartition(".")[2] + ".py", "line": 2}


async def test_code_for_another_event_loop_is_told_what_to_write(autojump_clock: MockClock) -> None:
    """Asyncio on Trio, and Trio on asyncio."""

    async def body(ctx: RunContext) -> None:
        await asyncio.sleep(1)

    code, message = (await ran(body)).error
    assert code == "PLUGIN_ERROR"
    assert message.startswith("RuntimeError: no running event loop. Async entries run on Trio: ")

    async def on_asyncio() -> str:
        try:
            await trio.sleep(1)
        except RuntimeError as error:
            return told(error)[0]
        return "it works"

    message = await trio.to_thread.run_sync(asyncio.run, on_asyncio())
    assert "Async entries in processes run on asyncio: write `await asyncio.sleep(1)`" in message
    assert told(ValueError("no running event loop"))[0] == "ValueError: no running event loop"
