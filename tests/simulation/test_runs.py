from __future__ import annotations

import pytest

from tests.simulation.run_life import live
from tests.simulation.run_mutants import MUTANTS, planted
from tests.simulation.seeds import SAME_SEEDS, histories_of, violation_of, violations

SEEDS = 1000
SOAK_SEEDS = 3000
SEEDS_FOR_A_MUTANT = 300


def test_runs_keep_every_promise() -> None:
    """Accepted runs end once, steps and exports are there once: in 1,000 worlds (R12, R33, R34)."""
    assert violations(live, range(SEEDS)) == []


@pytest.mark.soak
def test_runs_keep_every_promise_for_long() -> None:
    """The same, in 3,000 more."""
    assert violations(live, range(SEEDS, SEEDS + SOAK_SEEDS)) == []


@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_the_simulation_finds_a_planted_bug(mutant: str) -> None:
    """A bug of each known kind is found within a few hundred seeds."""
    with planted(mutant):
        assert any(violation_of(live, seed) for seed in range(SEEDS_FOR_A_MUTANT))


def test_a_seed_gives_the_same_world_each_time() -> None:
    """One seed, two processes with different hash seeds, one history."""
    histories = {histories_of("tests.simulation.run_life", hash_seed) for hash_seed in (1, 77)}
    assert len(histories) == 1
    assert len(set(histories.pop())) == SAME_SEEDS
