from __future__ import annotations

import pytest

from perdure.actors.run.events import (
    Answered,
    ChildStarted,
    QuestionAsked,
    RunEvent,
    SleepBegun,
    StepFailed,
    StepRecorded,
)
from perdure.actors.run.history import History, fingerprint
from tests.actors.test_run_core import BOOM, CREATED, STARTED, export


def test_a_history_finds_what_was_recorded_by_name() -> None:
    """Steps, failed tries, sleeps, questions with answers, children."""
    history = History()
    for event in (
        CREATED,
        STARTED,
        StepFailed(step="a", tries=1, error=BOOM, retry_at=9, at=0),
        StepRecorded(step="a", value={"x": [1]}, at=0),
        SleepBegun(step="nap", until=77, at=0),
        QuestionAsked(step="who", question_id="q1", question="?", at=0),
        Answered(question_id="q1", answer="me", by="b", at=0),
        ChildStarted(step="kid", child_run_id="r2", at=0),
    ):
        history.add(event)
    assert history.values == {"a": {"x": [1]}}
    assert history.failures["a"].tries == 1
    assert history.sleeps == {"nap": 77}
    assert history.answers[history.questions["who"]] == "me"
    assert history.children == {"kid": "r2"}
    assert history.last == "kid"


@pytest.mark.parametrize(
    ("event", "last"),
    [
        (StepRecorded(step="a", value=1, at=0), "a"),
        (SleepBegun(step="a", until=7, at=0), "a"),
        (QuestionAsked(step="a", question_id="q", question="?", at=0), "a"),
        (ChildStarted(step="a", child_run_id="r", at=0), "a"),
        (StepFailed(step="a", tries=1, error=BOOM, retry_at=9, at=0), "before"),
        (Answered(question_id="q", answer=1, by="b", at=0), "before"),
        (STARTED, "before"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_the_last_step_is_the_one_that_an_entry_passes_last(event: RunEvent, last: str) -> None:
    """Whatever an entry waited for at a step; a failed try is not the end of one."""
    history = History(last="before")
    history.add(event)
    assert history.last == last


def test_exports_are_known_by_key_and_by_being_the_nth_equal_one() -> None:
    """Three equal items are three items; the fourth would be new."""
    history = History()
    history.add(export(1, key="k"))
    for number in (2, 3):
        item = export(number)
        history.add(
            type(item)(
                number=number, type="text", text="x", fingerprint="f", occurrence=number, at=0
            )
        )
    assert history.keyed == {"k": 1}
    assert history.equal == {("f", 2): 2, ("f", 3): 3}
    assert history.exports == 3
    assert History().exports == 0


def test_equal_content_of_another_type_is_another_export() -> None:
    """Type and content make the difference."""
    assert fingerprint("text", "x") == fingerprint("text", "x")
    assert len({fingerprint("text", "x"), fingerprint("url", "x"), fingerprint("text", "y")}) == 3


def test_a_fingerprint_is_the_same_in_every_release() -> None:
    """It is stored, and compared with those that a later release makes."""
    assert fingerprint("json", {"a": [1, b"x"]}) == "856c915b5600daedc13f2595"
