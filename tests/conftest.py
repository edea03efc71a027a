"""Plugins of the whole suite."""

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

pytest_plugins = ["pytester", "tests.acceptance.plugin", "tests.programs", "tests.second_names"]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one process run all tests of a file: some look for what their plugin has left running."""
    return LoadFileScheduling(config, log)
