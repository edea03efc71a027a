from __future__ import annotations

import pytest

from tests.simulation.run_life import live
from tests.simulation.run_mutants import MUTANTS, planted
from tests.simulation.seeds import SAME_SEEDS, histories_of, violation_of, violations

SEEDS_FOR_A_MUTANT = 300


@pytest.mark.parametrize("worlds", [60, pytest.param(4_000, marks=pytest.mark.soak)])
def test_runs_keep_every_promise(worlds: int) -> None:
    """Accepted runs end once, steps and exports are there once: in every world (R12, R33, R34)."""
    assert violations(live, range(worlds)) == []


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
