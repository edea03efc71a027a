"""A judge without code of ours: schemathesis, on the document that is served."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
import schemathesis
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from perdure.demo import Demo
from perdure.runtime.plugins.plugin import declared
from tests.features import TRIED
from tests.repository.tree import ROOT
from tests.runtime.http.portal import Portal, served
from tests.runtime.world import Example

PLUGINS = {each.id: each for each in map(declared, (Example, Demo))}
RUN = msgspec.json.encode({"plugin_id": "test", "entry_id": "exports", "args": {}})
JSON = [(b"content-type", b"application/json")]
PHASES = ("examples", "coverage", "fuzzing", "stateful")


@pytest.mark.parametrize("examples", [5, pytest.param(300, marks=pytest.mark.soak)])
def test_the_document_keeps_its_word(examples: int) -> None:
    """Examples, edges, chance and sequences, with all of its checks: it finds nothing."""
    with served(PLUGINS, sync_wait=0.01, cancel_grace=0.01) as portal:
        found, cases, phases, labels = judged(portal, examples)
    assert found == []
    assert phases == dict.fromkeys(PHASES, "success")
    assert labels >= {
        f"{row.method} {row.path}" for row in TRIED.routes
    }  # the document itself is not tried
    assert cases.total() > 300
    assert 0 < cases["fuzzing"] <= examples * len(labels)  # as many as were asked for


def judged(
    portal: Portal, examples: int
) -> tuple[list[str], Counter[str], dict[str, str], set[str]]:
    """Everything that it finds, how much it tried, and how each phase ended."""
    made = [portal.ask("POST", "/runs", b"", JSON, RUN).json for _ in range(3)]
    schemathesis.openapi.format("cursor", st.sampled_from([run["cursor"] for run in made]))
    config = SchemathesisConfig.from_path(ROOT / "schemathesis.toml")
    config.projects.default.generation.update(max_examples=examples, database="none")
    api = schemathesis.openapi.from_wsgi("/openapi.json", portal.wsgi, config=config)
    found: list[str] = []
    phases: dict[str, str] = {}
    labels: set[str] = set()
    cases: Counter[str] = Counter()
    for event in from_schema(api).execute():
        match event:
            case events.PhaseFinished() if event.phase.name.value in PHASES:
                phases[event.phase.name.value] = event.status.value
            case events.NonFatalError() | events.FatalError():
                found.append(str(event))
            case events.ScenarioFinished(recorder=recorder, phase=phase):
                labels.add(recorder.label)
                cases[phase.value] += len(recorder.cases)
                found += [
                    f"{recorder.label}: {check.failure_info.failure}\n"
                    f"{check.failure_info.code_sample}"
                    for checks in recorder.checks.values()
                    for check in checks
                    if check.failure_info is not None
                ]
            case _:
                pass
    return found, cases, phases, labels
