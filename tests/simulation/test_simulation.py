from __future__ import annotations

import pytest
from trio._core import _run

from perdure.eventlog.simulation import simulate
from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.scenario import live
from tests.simulation.seeds import SAME_SEEDS, histories_of, violation_of, violations

SEEDS_FOR_A_MUTANT = 300


@pytest.mark.parametrize("worlds", [150, pytest.param(100_000, marks=pytest.mark.soak)])
def test_append_follow_and_crash_keep_every_promise(worlds: int) -> None:
    """Acknowledged is durable, followers see the log, conflicts are true: in every world."""
    assert violations(live, range(worlds)) == []


@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_the_simulation_finds_a_planted_bug(mutant: str) -> None:
    """A bug of each known kind is found within a few hundred seeds: the suite tests itself."""
    with planted(mutant):
        assert any(violation_of(live, seed) for seed in range(SEEDS_FOR_A_MUTANT))


def test_a_seed_gives_the_same_world_each_time() -> None:
    """One seed, two processes with different hash seeds, one history."""
    histories = {histories_of("tests.simulation.scenario", hash_seed) for hash_seed in (1, 77)}
    assert len(histories) == 1
    assert len(set(histories.pop())) == SAME_SEEDS


def test_the_private_hooks_of_trio_are_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deterministic scheduling rests on two private names of trio; their loss must be loud."""
    assert all(hasattr(_run, hook) for hook in ("_ALLOW_DETERMINISTIC_SCHEDULING", "_r"))
    monkeypatch.delattr(_run, "_r")
    with pytest.raises(RuntimeError, match="_r"):
        simulate(1, live)
