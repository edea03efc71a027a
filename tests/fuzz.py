"""How often tests that are fed by chance are fed: `make test` less, `make soak` more."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

COUNT: Final = int(os.environ.get("FUZZ_EXAMPLES", "2000"))


def examples(test: Callable[..., Any]) -> Any:
    """Feed a test so many examples (a decorator)."""
    fed = settings(
        max_examples=COUNT, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
    )
    return pytest.mark.fuzz(fed(test))
