from __future__ import annotations

from pathlib import Path

import pytest

from eventlog import MemoryStore
from tests.eventlog.conftest import SteadyEnv
from tests.runtime.terminal import Shell


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


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The command line in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)
