"""``ctx.run`` is the same wherever an entry runs: a plain one only does not await."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from perdure.fake import FakeRun
from perdure.runtime.execution.current_run import CurrentRun
from perdure.runtime.process.kit import SyncRun
from perdure.runtime.process.kit_async import AsyncRun


def calls(cls: type) -> dict[str, Any]:
    """What a class offers, by name."""
    return {
        name: member
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


def shape(call: Any) -> list[tuple[str, Any, Any]]:
    """The parameters of a call, without what they are annotated with."""
    parameters = inspect.signature(call).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in parameters]


@pytest.mark.parametrize("other", [SyncRun, FakeRun])
def test_every_run_offers_the_same_calls(other: type) -> None:
    """By name and by parameters."""
    inline, elsewhere = calls(CurrentRun), calls(other)
    assert inline.keys() == elsewhere.keys()
    differing = {name for name in inline if shape(inline[name]) != shape(elsewhere[name])}
    assert differing == set()


def test_an_async_run_in_a_process_offers_them_awaited() -> None:
    """What it has of its own is as inline; everything else is that of a plain one."""
    inline = calls(CurrentRun)
    for name, call in calls(AsyncRun).items():
        assert shape(call) == shape(inline[name]), name
        assert inspect.iscoroutinefunction(call) == inspect.iscoroutinefunction(inline[name]), name
    assert not inspect.iscoroutinefunction(inline["log"])
    awaited = {name for name, call in inline.items() if inspect.iscoroutinefunction(call)}
    assert inline.keys() - awaited <= calls(AsyncRun).keys()
