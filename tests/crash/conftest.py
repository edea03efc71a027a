from __future__ import annotations

import random

import pytest


@pytest.fixture
def seed() -> int:
    """Chance for the cuts; violations name it."""
    return random.SystemRandom().randrange(1 << 32)
