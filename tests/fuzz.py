"""How often tests that are fed by chance are fed: `make test` less, `make soak` more."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

COUNT: Final = int(os.environ.get("FUZZ_EXAMPLES", "200"))

Decorator = Callable[[Callable[..., Any]], Any]


def examples(*, batch: int = 1) -> Decorator:
    """Feed a test so many examples, ``batch`` at a time."""
    fed = settings(
        max_examples=COUNT // batch,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    return lambda test: pytest.mark.fuzz(fed(test))
