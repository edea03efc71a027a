from __future__ import annotations

import random

import pytest

from perdure.eventlog.memory import MemoryStore
from perdure.eventlog.simulation import SimEnv


class SteadyEnv(SimEnv):
    """A simulated process whose threads take two seconds, one before and one after the call."""

    def __init__(self) -> None:
        """Use no chance at all."""
        super().__init__(random.Random(0))
        self.faults._delay_chance = 0.0
        self.delay = 1.0

    def _thread_delay(self) -> float:
        return self.delay


@pytest.fixture
def env() -> SteadyEnv:
    """A process in virtual time; a test names ``autojump_clock`` beside it."""
    return SteadyEnv()


@pytest.fixture
def store() -> MemoryStore:
    """An empty store in memory."""
    return MemoryStore()
