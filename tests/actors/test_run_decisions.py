"""What each command records, in full: nothing that a command says is lost on the way."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.actors.errors import (
    AnsweredOtherwise,
    Fenced,
    Invalid,
    NoSuchQuestion,
    NotNow,
    Refusal,
)
from perdure.actors.run.commands import Activate, Answer, Deactivate, Finish, Recover, RequestCancel
from perdure.actors.run.core import RUN, decide
from perdure.actors.run.crashes import LIMIT, fault_of
from perdure.actors.run.events import (
    Activated,
    Answered,
    CancelRequested,
    Deactivated,
    ResultMarked,
    RunEnded,
    RunError,
    RunEvent,
)
from perdure.actors.run.status import CancelIntent, CancelMode, Outcome, Status
from perdure.actors.run.stopped import canceled, timed_out
from tests.actors.given import given
from tests.actors.test_run_core import ASKED, BOOM, CANCELING, CREATED, HISTORIES, SECOND, export

RUNNING = HISTORIES[Status.RUNNING]
MARKED = (*RUNNING, export(1), ResultMarked(items=(1,), at=0))
LATE = 61 * SECOND  # when the time of the example is up


def lost(message: str, *, at: int, result: tuple[int, ...] = ()) -> RunEnded:
    """The end of a run that nobody executes any more."""
    error = RunError(code="HOST_LOST", message=message, retriable=True)
    return RunEnded(outcome=Outcome.FAILED, error=error, result=result, at=at)


def suspected(activations: int) -> tuple[RunEvent, ...]:
    """A run that was activated several times and got nowhere, alone on its hosts."""
    started = [
        Activated(host="h", epoch=epoch, plugin_version="1", suspects=1, at=SECOND)
        for epoch in range(1, activations + 1)
    ]
    return (CREATED, *started)


def refusal(history: tuple[RunEvent, ...], command: object) -> Refusal | None:
    """Why a command is refused."""
    return given(RUN, *history).when(command).refusal


def test_an_activation_records_who_executes_and_with_what() -> None:
    """The host, the version of the plugin, the epoch and the time are those of the command."""
    given(RUN, CREATED).when(Activate(host="h7", epoch=1, plugin_version="2.1", at=5)).then(
        Activated(host="h7", epoch=1, plugin_version="2.1", at=5)
    )


def test_letting_go_records_which_activation_did() -> None:
    """Its epoch and its time."""
    given(RUN, *RUNNING).when(Deactivate(epoch=1, at=7)).then(Deactivated(epoch=1, at=7))


def test_a_cancel_records_who_wanted_what_and_how() -> None:
    """Intent, mode, reason, person, time and deadline are those of the request."""
    request = RequestCancel(
        by="t/p",
        at=9,
        intent=CancelIntent.STOP,
        mode=CancelMode.INTERRUPT,
        reason="later",
        deadline=12,
    )
    requested = CancelRequested(
        intent=CancelIntent.STOP,
        mode=CancelMode.INTERRUPT,
        reason="later",
        by="t/p",
        at=9,
        deadline=12,
    )
    given(RUN, *RUNNING).when(request).then(requested)
    end = RunEnded(
        outcome=Outcome.CANCELED,
        error=RunError(code="CANCELED", message="later"),
        result=(),
        at=9,
    )
    given(RUN, CREATED).when(request).then(requested, end)


def test_a_queued_run_whose_time_is_up_is_canceled() -> None:
    """It had no time yet: time is counted from the start."""
    request = RequestCancel(by="clock", at=9, intent=CancelIntent.TIMEOUT)
    assert given(RUN, CREATED).when(request).allowed().state.status is Status.CANCELED


def test_an_answer_records_what_was_said_and_by_whom() -> None:
    """As it was given."""
    given(RUN, *RUNNING, ASKED).when(Answer(question_id="q", answer=0, by="t/p", at=9)).then(
        Answered(question_id="q", answer=0, by="t/p", at=9)
    )


@pytest.mark.parametrize(
    ("history", "command", "expected"),
    [
        ((*RUNNING, CANCELING), RequestCancel(by="b", at=9), ()),
        (
            (*MARKED, CANCELING),
            Recover(resumes=True, compatible=True, at=9),
            (
                RunEnded(
                    outcome=Outcome.CANCELED,
                    error=RunError(code="CANCELED", message="enough"),
                    result=(1,),
                    at=9,
                ),
            ),
        ),
        (
            (*MARKED, replace(CANCELING, intent=CancelIntent.TIMEOUT)),
            Recover(resumes=True, compatible=True, at=9),
            (
                RunEnded(
                    outcome=Outcome.TIMEOUT,
                    error=RunError(
                        code="TIMEOUT",
                        message="the run did not end within 60 seconds",
                        retriable=True,
                    ),
                    result=(1,),
                    at=9,
                ),
            ),
        ),
        (
            MARKED,
            Recover(resumes=True, compatible=True, at=LATE),
            (
                RunEnded(
                    outcome=Outcome.TIMEOUT,
                    error=RunError(
                        code="TIMEOUT",
                        message="the run did not end within 60 seconds",
                        retriable=True,
                    ),
                    result=(1,),
                    at=LATE,
                ),
            ),
        ),
        (
            MARKED,
            Recover(resumes=False, compatible=True, at=9),
            (lost("the host was lost while the run was running", at=9, result=(1,)),),
        ),
        (
            MARKED,
            Recover(resumes=True, compatible=False, at=9),
            (lost("the plugin's version has changed and is not compatible", at=9, result=(1,)),),
        ),
        (
            suspected(LIMIT),
            Recover(resumes=True, compatible=True, suspects=1, at=9),
            (lost(str(fault_of(LIMIT)), at=9),),
        ),
    ],
    ids=["again", "canceled", "time was up", "time is up", "lost", "incompatible", "nowhere"],
)
def test_an_end_records_why_and_when_and_what_was_marked(
    history: tuple[RunEvent, ...], command: object, expected: tuple[RunEvent, ...]
) -> None:
    """What was marked as the result stays the result, however the run ended."""
    given(RUN, *history).when(command).then(*expected)


def test_a_run_without_a_reason_or_a_limit_still_says_why_it_ended() -> None:
    """An error always has a message."""
    assert (
        canceled(None) == canceled("") == RunError(code="CANCELED", message="the run was canceled")
    )
    endless = given(RUN, replace(CREATED, timeout=None)).state
    assert timed_out(endless.created) == RunError(
        code="TIMEOUT", message="the run did not end in time", retriable=True
    )


@pytest.mark.parametrize(
    ("history", "command", "expected"),
    [
        (
            HISTORIES[Status.FAILED],
            Activate(host="h", epoch=2, plugin_version="1", at=0),
            NotNow("activating", "failed"),
        ),
        (RUNNING, Activate(host="h", epoch=3, plugin_version="1", at=0), Fenced(3, 1)),
        (RUNNING, Deactivate(epoch=3, at=0), Fenced(3, 1)),
        (
            (*RUNNING, ASKED, CANCELING),
            Answer(question_id="q", answer=1, by="b", at=0),
            NotNow("answering", "cancel_requested"),
        ),
        (RUNNING, Answer(question_id="q", answer=1, by="b", at=0), NoSuchQuestion("q")),
        (
            (*RUNNING, ASKED, Answered(question_id="q", answer=2, by="b", at=0)),
            Answer(question_id="q", answer=1, by="b", at=0),
            AnsweredOtherwise("q"),
        ),
        (
            RUNNING,
            Finish(epoch=1, outcome=Outcome.FAILED, at=0),
            Invalid("a run succeeds without an error and ends otherwise with one"),
        ),
    ],
    ids=["over", "skipped", "zombie", "too late", "unasked", "answered", "contradiction"],
)
def test_a_refusal_names_what_is_in_the_way(
    history: tuple[RunEvent, ...], command: object, expected: Refusal
) -> None:
    """The command, the status, both epochs, the question."""
    refused = refusal(history, command)
    assert refused is not None
    assert (type(refused), str(refused), vars(refused)) == (
        type(expected),
        str(expected),
        vars(expected),
    )


def test_an_end_is_answered_no_more() -> None:
    """Whoever answers a run that is over hears that it is."""
    run = given(RUN, *RUNNING, ASKED).when(Finish(epoch=1, outcome=Outcome.SUCCEEDED, at=0))
    late = Answer(question_id="q", answer=1, by="b", at=0)
    run.allowed().when(late).refused(NotNow, "succeeded")


def test_what_is_no_command_is_a_bug() -> None:
    """It is not passed over in silence."""
    run = given(RUN, *RUNNING).state
    with pytest.raises(AssertionError, match="PLUGIN_ERROR"):
        decide(run, BOOM)  # type: ignore[arg-type]


def answers_after(first: Any, second: Any) -> tuple[RunEvent, ...]:
    """What follows from an answer to a question that has one."""
    answered = Answered(question_id="q", answer=first, by="b", at=0)
    run = given(RUN, *RUNNING, ASKED, answered).state
    return decide(run, Answer(question_id="q", answer=second, by="b", at=1))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (None, None),
        (True, True),
        (1, 1.0),  # JSON has one kind of number: a client that repeats 1.0 may well write 1
        (0.0, -0.0),
        ([1, [2.0]], [1.0, [2]]),
        ([1, 2], (1, 2)),  # both are stored as an array
        ({"a": 1, "b": {"c": [True]}}, {"b": {"c": [True]}, "a": 1}),
        ("1", "1"),
        (b"1", b"1"),
    ],
)
def test_the_same_answer_again_changes_nothing(first: Any, second: Any) -> None:
    """Numbers are compared by value, objects without an order."""
    assert answers_after(first, second) == ()
    assert answers_after(second, first) == ()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (True, 1),
        (True, 1.0),
        (False, 0),
        (False, None),
        (0, None),
        (1, "1"),
        ("1", b"1"),
        ([True], [1]),
        ([1], [1, 2]),
        ([1, 2], [2, 1]),
        ([], {}),
        ([], None),
        ({"a": {"b": [0, False]}}, {"a": {"b": [0, 0]}}),
        ({"a": 1}, {"a": 1, "b": None}),
        ({"a": 1}, {"b": 1}),
        ((1 << 53) + 1, float(1 << 53)),
    ],
)
def test_another_answer_is_refused(first: Any, second: Any) -> None:
    """Yes is not one, whatever Python says; neither is it inside of something."""
    for one, other in ((first, second), (second, first)):
        with pytest.raises(AnsweredOtherwise):
            answers_after(one, other)
