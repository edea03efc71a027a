"""The life of an activation, as a table."""

from __future__ import annotations

from itertools import product
from unittest import mock

import pytest

from perdure.actors.run import activation
from perdure.actors.run.activation import TRANSITIONS, Activation, Happening, Illegal, advance
from tests.actors.activation_rules import A, H, broken_edges, with_edge

# What becomes of an activation in each state; nothing where it cannot happen.
TABLE = """
             INTERRUPT    BREAK        DRAIN        FENCE        FORCE    RETURN      ABANDON     ENDED
WORKING      INTERRUPTED  BROKEN       DRAINING     FENCED       -        ENDING      OVER        LEFT_BEHIND
INTERRUPTED  INTERRUPTED  BROKEN       DRAINING     FENCED       FORCING  ENDING      OVER        LEFT_BEHIND
BROKEN       BROKEN       BROKEN       DRAINING     FENCED       FORCING  ENDING      OVER        LEFT_BEHIND
DRAINING     DRAINING     DRAINING     DRAINING     FENCED       -        LETTING_GO  LETTING_GO  LEFT_BEHIND
FORCING      FORCING      FORCING      FORCING      FENCED       -        ENDING      OVER        LEFT_BEHIND
LEFT_BEHIND  -            LEFT_BEHIND  LEFT_BEHIND  LEFT_BEHIND  -        OVER        OVER        LEFT_BEHIND
FENCED       -            FENCED       FENCED       FENCED       -        OVER        OVER        FENCED
ENDING       ENDING       ENDING       ENDING       OVER         -        -           -           OVER
LETTING_GO   LETTING_GO   LETTING_GO   LETTING_GO   OVER         -        -           -           OVER
OVER         -            OVER         OVER         OVER         -        -           -           OVER
"""  # noqa: E501 - a table has its width
_HEAD, *_ROWS = [line.split() for line in TABLE.strip().splitlines()]
AFTER = {
    (A[row[0]], H[name]): None if cell == "-" else A[cell]
    for row in _ROWS
    for name, cell in zip(_HEAD, row[1:], strict=True)
}
ILLEGAL = [step for step, after in AFTER.items() if after is None]


@pytest.mark.parametrize(("state", "happening"), list(product(Activation, Happening)))
def test_everything_that_can_happen_in_every_state(state: Activation, happening: Happening) -> None:
    """Each leads where the table says, or is refused and both are named."""
    expected = AFTER[state, happening]
    if expected is not None:
        assert advance(state, happening) is expected
        return
    with pytest.raises(Illegal) as refused:
        advance(state, happening)
    assert (refused.value.state, refused.value.happening) == (state, happening)
    assert str(refused.value) == (
        f"{happening.name} cannot happen to an activation that is {state.name}"
    )


def test_no_edge_breaks_a_rule() -> None:
    """An entry ends once, who is silent stays silent, a drain lets go, and so on."""
    assert broken_edges() == []


@pytest.mark.parametrize(("state", "happening"), ILLEGAL)
def test_a_mutant_that_allows_an_illegal_edge_is_found(
    state: Activation, happening: Happening
) -> None:
    """By the rules alone, whichever state it leads to: the simulation holds them at each step."""
    for after in Activation:
        mutated = with_edge(state, happening, after)
        with mock.patch.object(activation, "TRANSITIONS", mutated):
            assert advance(state, happening) is after
        assert broken_edges(mutated) != []


@pytest.mark.parametrize("state", Activation)
def test_a_mutant_that_leads_elsewhere_says_as_much_or_is_found(state: Activation) -> None:
    """Rules find it, unless the other state says as much and its entry is as much at work."""
    for happening, right in TRANSITIONS[state].items():
        for after in set(Activation) - {right}:
            is_alike = (after.entry_is_at_work, after.is_silent) == (
                right.entry_is_at_work,
                right.is_silent,
            )
            assert is_alike or broken_edges(with_edge(state, happening, after)) != []


def test_every_life_can_come_to_its_end() -> None:
    """From each state the last one can be reached, and from the last one none."""
    reaching = {A.OVER}
    for _ in Activation:
        reaching |= {state for state, edges in TRANSITIONS.items() if reaching & {*edges.values()}}
    assert reaching == set(Activation)
    assert set(TRANSITIONS[A.OVER].values()) == {A.OVER}


@pytest.mark.parametrize(
    ("state", "at_work", "stopping", "heard", "silent", "lets_go"),
    [
        (A.WORKING, True, False, True, False, False),
        (A.INTERRUPTED, True, True, True, False, False),
        (A.BROKEN, True, True, True, False, False),
        (A.DRAINING, True, True, True, False, True),
        (A.FORCING, True, True, False, False, False),
        (A.LEFT_BEHIND, True, True, False, True, False),
        (A.FENCED, True, True, False, True, False),
        (A.ENDING, False, False, False, False, False),
        (A.LETTING_GO, False, False, False, False, True),
        (A.OVER, False, False, False, True, False),
    ],
)
def test_a_state_tells_what_may_be_done_in_it(
    state: Activation, at_work: bool, stopping: bool, heard: bool, silent: bool, lets_go: bool
) -> None:
    """Call, interrupt, listen, speak and end: an execution asks its state and nothing else."""
    assert state.entry_is_at_work is at_work
    assert state.is_stopping is stopping
    assert state.hears_its_entry is heard
    assert state.is_silent is silent
    assert state.lets_go is lets_go
