"""``ctx.run`` is written once; a plain function has the same calls, and only does not await."""

from __future__ import annotations

import inspect
from typing import Any

from perdure.fake import FakeRun
from perdure.runtime.plugins.current_run import CurrentRun
from perdure.runtime.plugins.sync_run import SyncRun


def calls(cls: type) -> dict[str, Any]:
    """What a class offers, by name."""
    return {
        name: member
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


def shape(call: Any) -> list[tuple[str, Any]]:
    """The parameters of a call after the first, without what they are annotated with."""
    parameters = list(inspect.signature(call, follow_wrapped=True).parameters.values())
    return [(parameter.name, parameter.kind, parameter.default) for parameter in parameters[1:]]  # type: ignore[misc]


def test_a_plain_run_offers_what_an_awaited_one_does() -> None:
    """Every public name, with the same parameters and a docstring, and none of them is awaited."""
    awaited, plain = calls(CurrentRun), calls(SyncRun)
    assert awaited.keys() == plain.keys()
    assert {name for name in awaited if shape(awaited[name]) != shape(plain[name])} == set()
    assert not any(map(inspect.iscoroutinefunction, plain.values()))
    assert all(call.__doc__ == awaited[name].__doc__ for name, call in plain.items())


def test_a_fake_run_is_a_run() -> None:
    """It replaces no call: only what lies behind the port is another."""
    assert vars(FakeRun).keys() & calls(CurrentRun).keys() == set()
