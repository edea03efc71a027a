from __future__ import annotations

from typing import Any

import pytest

from perdure.actors.errors import Fenced, Invalid
from tests.actors.given import Given, given
from tests.actors.test_mailbox import COUNTER, Count, Counted, TooMuch


def counted(*steps: int) -> Given:
    """A counter with a history."""
    return given(COUNTER, *(Counted(by=step) for step in steps))


def test_what_follows_becomes_history() -> None:
    """A scenario goes on from where it came to."""
    assert counted(1).when(Count(2)).then(Counted(by=2)).state == 3
    assert counted(1).when(Count(2)).allowed().when(Count(4)).allowed().state == 7


def test_other_events_than_expected_fail_and_both_are_shown() -> None:
    """Whoever reads the failure sees what was expected and what came."""
    with pytest.raises(AssertionError, match=r"(?s)expected \(.*by=9.*got \(.*by=2"):
        counted(1).when(Count(2)).then(Counted(by=9))
    with pytest.raises(AssertionError, match=r"expected \(\)"):
        counted(1).when(Count(2)).then()


def test_a_refusal_fails_whoever_expects_events() -> None:
    """It is shown, and is the cause."""
    with pytest.raises(AssertionError, match="refused: TooMuch") as failure:
        counted(99).when(Count(2)).allowed()
    assert isinstance(failure.value.__cause__, TooMuch)


def test_a_refusal_is_expected_by_kind_and_reason() -> None:
    """Both must fit; what was refused is remembered."""
    refused = counted(99).when(Count(2))
    refused.refused(TooMuch)
    refused.refused(TooMuch, "99 + 2")
    assert (refused.given, refused.events) == (counted(99), ())


@pytest.mark.parametrize(
    ("scenario", "error", "reason"),
    [
        (counted(99).when(Count(2)), Fenced, "99 + 2"),
        (counted(99).when(Count(2)), TooMuch, "no such reason"),
        (counted(99).when(Count(1)), TooMuch, ""),
        (counted(99).when(Count(1)), Invalid, "None"),
    ],
    ids=["another kind", "another reason", "allowed", "allowed, whatever the reason"],
)
def test_another_refusal_than_expected_fails(scenario: Any, error: Any, reason: str) -> None:
    """The failure names what was expected and shows what came."""
    with pytest.raises(AssertionError) as failure:
        scenario.refused(error, reason)
    assert str(failure.value).startswith(f"expected {error.__name__} ({reason}), got When(")
