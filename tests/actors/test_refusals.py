from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure.actors.errors import (
    AnsweredOtherwise,
    Fenced,
    NoSuchQuestion,
    NotNow,
    Refusal,
    TooLarge,
)


@pytest.mark.parametrize(
    ("kind", "about", "says", "knows"),
    [
        (
            NotNow,
            ("answering", "failed"),
            "answering is not possible: the run is failed",
            {"command": "answering", "status": "failed"},
        ),
        (
            Fenced,
            (1, 2),
            "activation 1 is not in charge any more (it is 2)",
            {"epoch": 1, "current": 2},
        ),
        (
            TooLarge,
            (65, 64),
            "65 bytes are too many: at most 64 fit; export an address",
            {"size": 65, "limit": 64},
        ),
        (NoSuchQuestion, ("q",), "the run has asked no question 'q'", {"question_id": "q"}),
        (
            AnsweredOtherwise,
            ("q",),
            "question 'q' has another answer already",
            {"question_id": "q"},
        ),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_refusal_says_why_and_carries_what_it_says(
    kind: Callable[..., Refusal], about: tuple[object, ...], says: str, knows: dict[str, object]
) -> None:
    """People read the sentence; programs read the attributes."""
    refusal = kind(*about)
    assert str(refusal) == says
    assert vars(refusal) == knows
