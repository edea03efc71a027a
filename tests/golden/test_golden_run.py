from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.actors.run.core import FOLD
from perdure.eventlog.registry import EventRegistry
from perdure.eventlog.testing import example_record
from tests.golden.runs import BESIDE, HISTORY, REGISTRIES
from tools.golden import shown, stored

RUNS = sorted(Path(__file__).parent.glob("run-*.json"))


def decoded(item: dict[str, Any]) -> Any:
    """Read an event as a later release finds it."""
    for registry in REGISTRIES:
        if item["name"] in {_name(cls) for cls in registry}:
            return _decoded(registry, item)
    raise AssertionError(f"{item['name']} is not known any more")


def _name(cls: Any) -> str:
    return str(cls.event_name)


def _decoded(registry: EventRegistry, item: dict[str, Any]) -> Any:
    record = example_record(1)._replace(
        name=item["name"], schema=item["schema"], body=bytes.fromhex(item["body"])
    )
    return registry.decode(record)


def test_the_golden_run_has_every_event() -> None:
    """A new event is not done before it is in the golden run."""
    known = {_name(cls) for registry in REGISTRIES for cls in registry}
    assert {_name(type(event)) for event in [*HISTORY, *BESIDE]} == known
    assert f"{FOLD}.json" in [path.name for path in RUNS]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_golden_run_folds_to_the_same_for_ever(path: Path) -> None:
    """At every moment of its history each field has the value that it was written with (R34)."""
    golden = json.loads(path.read_text())
    history = [decoded(item) for item in golden["history"]]
    for length, expected in enumerate(golden["records"], 1):
        record = json.loads(json.dumps(shown(history[:length])))
        assert {name: record[name] for name in expected} == expected
    for item in golden["beside"]:
        decoded(item)


def test_events_are_written_as_they_always_were() -> None:
    """The bytes of today's encoding are those of the golden run of today's fold."""
    golden = json.loads((Path(__file__).parent / f"{FOLD}.json").read_text())
    assert [stored(event) for event in HISTORY] == golden["history"]
    assert [stored(event) for event in BESIDE] == golden["beside"]
    assert [decoded(item) for item in golden["history"]] == HISTORY
