"""The page about the server against the code."""

from __future__ import annotations

import re

from perdure.runtime.features import FEATURES
from perdure.runtime.http import health
from perdure.runtime.http.event_routes import event_routes
from perdure.runtime.runs.requests import BulkRequest
from tests.repository.tree import ROOT
from tests.runtime.settings import TABLE, settings_with

PAGE = (ROOT / "docs" / "serving.md").read_text("utf-8")


def test_every_route_of_the_server_is_on_the_page() -> None:
    """Events, health and figures; and no others."""
    named = re.findall(r"^\| `(/[^`]+)` \|", PAGE, re.MULTILINE)
    rows = (*event_routes(FEATURES), *health.HEALTH)
    assert sorted(named) == sorted([*(row.path for row in rows), "/metrics"])


def test_filters_are_on_the_page() -> None:
    """Each argument of a stream, and each condition on many runs."""
    filters = [each.filters.__struct_fields__ for each in FEATURES.channels.values()]
    for field in (*(name for names in filters for name in names), *BulkRequest.__struct_fields__):
        assert re.search(rf"`[^`]*\b{field}\b[^`]*`", PAGE), field


def test_settings_are_those_of_the_code() -> None:
    """Their names exist, and so do their defaults."""
    defaults = TABLE.values(settings_with())
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
    for names, default in rows:
        found = re.findall(r"`(\w+)`", names)
        assert set(found) <= set(TABLE.names)
        values = [defaults[name] for name in found]
        shown = ", ".join(
            f"{value:g}" if isinstance(value, float) else str(value) for value in values
        )
        assert default == (shown if any(values) else "none")
    assert len(rows) == 7
