from __future__ import annotations

import pytest

from eventlog import MemoryStore
from tests.eventlog.conftest import SteadyEnv


@pytest.fixture
def env() -> SteadyEnv:
    """A process in virtual time whose threads take little of it."""
    env = SteadyEnv()
    env.delay = 0.001
    return env


@pytest.fixture
def store() -> MemoryStore:
    """An empty store in memory."""
    return MemoryStore()
