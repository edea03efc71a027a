from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from actors.claim import ClaimMade
from actors.folded import Folded
from actors.run import outbox
from actors.run.core import RUN, Run
from actors.run.events import RunCreated
from eventlog.record import START
from runtime.creation import Creation
from runtime.host import stream_of
from runtime.principal import Principal
from runtime.requests import CreateRun
from tests.simulation.run_world import live
from tests.simulation.seeds import violation_of, violations

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


def never_known(self: outbox.Outbox, key: str | None, mark: str) -> tuple[int | None, int]:
    """Recognise no export of an earlier activation."""
    occurrence = self._occurrences[mark] = self._occurrences.get(mark, 0) + 1
    return None, occurrence


def known_by_count(self: outbox.Outbox, key: str | None, mark: str) -> tuple[int | None, int]:
    """Take the n-th export for the n-th recorded one, whatever it is."""
    number = self._occurrences[""] = self._occurrences.get("", 0) + 1
    return (number if number <= self._history.exports else None), number


def always_over(self: ClaimMade, now: int, *, run_has_ended: bool) -> bool:
    """Keep no claim."""
    return True


async def claim_in_memory(
    self: Creation, _: Principal, request: CreateRun, created: RunCreated
) -> Folded[Run]:
    """Remember keys, but not in the log."""
    known = self.__dict__.setdefault("known", {})
    async with self._queued(str(request.idempotency_key)):
        if request.idempotency_key in known:
            return await self._host.runs.look(stream_of(known[request.idempotency_key]))
        known[request.idempotency_key] = created.run_id
        return await self._append(created)


async def answer_from_a_reservation(
    self: Creation, _: Principal, request: CreateRun, created: RunCreated
) -> Folded[Run]:
    """Tell the second caller of a key what the first has not written yet."""
    reserved = self.__dict__.setdefault("reserved", {})
    if request.idempotency_key in reserved:
        run = RUN.evolve(None, reserved[request.idempotency_key])
        return Folded(run, 1, START, 0, "")
    reserved[request.idempotency_key] = created
    return await _create_once(self, _, request, created)


_create_once = Creation._create_once

MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "exports-not-recognised": (outbox.Outbox, "_known", never_known),
    "exports-suppressed-by-count": (outbox.Outbox, "_known", known_by_count),
    "claims-not-kept": (ClaimMade, "is_over", always_over),
    "claim-only-in-memory": (Creation, "_create_once", claim_in_memory),
    "answer-from-a-reservation": (Creation, "_create_once", answer_from_a_reservation),
}


@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_the_simulation_finds_a_planted_bug(mutant: str) -> None:
    """A bug of each known kind is found within a few hundred seeds."""
    owner, attribute, bug = MUTANTS[mutant]
    with mock.patch.object(owner, attribute, bug):
        assert any(violation_of(live, seed) for seed in range(SEEDS_FOR_A_MUTANT))
