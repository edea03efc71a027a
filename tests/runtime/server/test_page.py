"""The page about the server against the code."""

from __future__ import annotations

import re

from perdure.runtime.http import event_routes as events
from perdure.runtime.http import health
from perdure.runtime.kernel.settings import NAMES, Settings
from perdure.runtime.runs.requests import BulkRequest
from tests.repository.tree import ROOT

PAGE = (ROOT / "docs" / "serving.md").read_text("utf-8")


def test_every_route_of_the_server_is_on_the_page() -> None:
    """Events, health and figures; and no others."""
    named = re.findall(r"^\| `(/[^`]+)` \|", PAGE, re.MULTILINE)
    rows = (*events.ROWS, *health.ROWS)
    assert sorted(named) == sorted([*(row.path for row in rows), "/metrics"])


def test_filters_are_on_the_page() -> None:
    """Each argument of a stream, and each condition on many runs."""
    for field in (*events.FollowEvents.__struct_fields__, *BulkRequest.__struct_fields__):
        assert re.search(rf"`[^`]*\b{field}\b[^`]*`", PAGE), field


def test_settings_are_those_of_the_code() -> None:
    """Their names exist, and so do their defaults."""
    settings = Settings()
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
    for names, default in rows:
        found = re.findall(r"`(\w+)`", names)
        assert set(found) <= set(NAMES)
        values = [getattr(settings, name) for name in found]
        shown = ", ".join(
            f"{value:g}" if isinstance(value, float) else str(value) for value in values
        )
        assert default == (shown if any(values) else "none")
    assert len(rows) == 6
