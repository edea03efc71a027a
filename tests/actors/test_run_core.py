from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given as hypothetically
from hypothesis import strategies as st

from perdure.actors.errors import AnsweredOtherwise, Fenced, Invalid, NotNow, Refusal
from perdure.actors.run.commands import (
    Activate,
    Answer,
    Deactivate,
    Deliver,
    Finish,
    Recover,
    RequestCancel,
    RunCommand,
)
from perdure.actors.run.core import RUN, Run, decide, evolve
from perdure.actors.run.events import (
    Activated,
    Answered,
    CancelEscalated,
    CancelRequested,
    ExportAppended,
    ProgressReported,
    QuestionAsked,
    ResultMarked,
    RunCreated,
    RunEnded,
    RunError,
    RunEvent,
    StageChanged,
    StepRecorded,
)
from perdure.actors.run.status import TRANSITIONS, CancelIntent, CancelMode, Outcome, Status
from tests.actors.given import given

SECOND = 1_000_000_000
BOOM = RunError(code="PLUGIN_ERROR", message="boom")
CREATED = RunCreated(
    run_id="0190a1b2-0000-7000-8000-000000000001",
    plugin_id="demo",
    entry_id="count",
    args={"to": 3},
    tenant="local",
    principal="local",
    root_run_id="0190a1b2-0000-7000-8000-000000000001",
    attempt=1,
    at=0,
    timeout=60.0,
)
STARTED = Activated(host="h", epoch=1, plugin_version="1", at=SECOND)
CANCELING = CancelRequested(
    intent=CancelIntent.CANCEL,
    mode=CancelMode.COOPERATIVE,
    reason="enough",
    by="local/local",
    at=2 * SECOND,
)


def ended(outcome: Outcome, error: RunError | None = BOOM, at: int = 3 * SECOND) -> RunEnded:
    """A terminal event."""
    error = None if outcome is Outcome.SUCCEEDED else error
    return RunEnded(outcome=outcome, error=error, result=(), at=at)


HISTORIES: dict[Status, tuple[RunEvent, ...]] = {
    Status.QUEUED: (CREATED,),
    Status.RUNNING: (CREATED, STARTED),
    Status.CANCEL_REQUESTED: (CREATED, STARTED, CANCELING),
    Status.SUCCEEDED: (CREATED, STARTED, ended(Outcome.SUCCEEDED)),
    Status.FAILED: (CREATED, STARTED, ended(Outcome.FAILED)),
    Status.CANCELED: (CREATED, STARTED, CANCELING, ended(Outcome.CANCELED)),
    Status.TIMEOUT: (CREATED, STARTED, ended(Outcome.TIMEOUT)),
}


def export(number: int = 1, **content: Any) -> ExportAppended:
    """An export item; text unless told otherwise."""
    parts: dict[str, Any] = {"type": "text", "text": "x"} | content
    return ExportAppended(number=number, fingerprint="f", occurrence=1, at=0, **parts)


def deliver(*outputs: Any, epoch: int = 1) -> Deliver:
    """Hand over outputs."""
    return Deliver(epoch=epoch, outputs=outputs, at=4 * SECOND)


def finish(outcome: Outcome, *outputs: Any, epoch: int = 1) -> Finish:
    """End an execution."""
    error = None if outcome is Outcome.SUCCEEDED else BOOM
    return Finish(epoch=epoch, outcome=outcome, error=error, outputs=outputs, at=4 * SECOND)


ACTIVATE = Activate(host="h", epoch=1, plugin_version="1", at=4 * SECOND)
ACTIVATE_AGAIN = Activate(host="h", epoch=2, plugin_version="1", at=4 * SECOND)
DEACTIVATE = Deactivate(epoch=1, at=4 * SECOND)


# The life of a run


def test_a_new_run_is_queued() -> None:
    """Accepted is queued, before anything was executed (R2)."""
    run = given(RUN, CREATED).state
    assert (run.status, run.started_at, run.cancel, run.result) == (Status.QUEUED, None, None, ())


def test_the_first_activation_is_the_start() -> None:
    """Running begins once; a later activation keeps the start and the deadline (R3)."""
    run = given(RUN, CREATED).when(ACTIVATE).allowed()
    assert run.state.started_at == 4 * SECOND
    assert run.state.deadline == 64 * SECOND
    again = run.when(Activate(host="h2", epoch=2, plugin_version="1", at=9 * SECOND)).allowed()
    assert (again.state.started_at, again.state.epoch) == (4 * SECOND, 2)


def test_the_end_is_one_event() -> None:
    """Outcome, error, time and result change together (R5, R6, R27)."""
    run = given(RUN, *HISTORIES[Status.RUNNING], export())
    run.when(finish(Outcome.FAILED, ResultMarked(items=(1,), at=0))).then(
        ResultMarked(items=(1,), at=0),
        RunEnded(outcome=Outcome.FAILED, error=BOOM, result=(1,), at=4 * SECOND),
    )


def test_success_has_no_error_and_failure_has_one() -> None:
    """An end that contradicts itself is refused."""
    run = given(RUN, *HISTORIES[Status.RUNNING])
    run.when(Finish(epoch=1, outcome=Outcome.SUCCEEDED, error=BOOM, at=0)).refused(Invalid)
    run.when(Finish(epoch=1, outcome=Outcome.FAILED, at=0)).refused(Invalid)


def test_a_zombie_is_fenced() -> None:
    """After a second activation the first one's commands are refused, the new one's are not."""
    run = given(RUN, *HISTORIES[Status.RUNNING]).when(ACTIVATE_AGAIN).allowed()
    for command in (deliver(export()), finish(Outcome.SUCCEEDED), Deactivate(epoch=1, at=0)):
        run.when(command).refused(Fenced, "activation 1 is not in charge")
    run.when(deliver(export(), epoch=2)).allowed()


def test_a_drained_run_refuses_its_old_execution() -> None:
    """Let go is let go; the next activation goes on."""
    run = given(RUN, *HISTORIES[Status.RUNNING]).when(DEACTIVATE).allowed()
    run.when(deliver(export())).refused(Fenced)
    run.when(ACTIVATE_AGAIN).allowed().when(deliver(export(), epoch=2)).allowed()


# Cancelling


def test_cancelling_a_queued_run_ends_it() -> None:
    """It is canceled in one append, with its reason, and was never started (R4, R73, R75)."""
    command = RequestCancel(by="b", reason="enough", at=5)
    run = given(RUN, CREATED).when(command).allowed().state
    assert (run.status, run.started_at, run.epoch) == (Status.CANCELED, None, 0)
    assert run.cancel is not None
    assert run.cancel.reason == "enough"
    assert run.error == RunError(code="CANCELED", message="enough")


def test_cancelling_twice_changes_nothing() -> None:
    """The first request counts: its time, its reason, its intent (R78)."""
    run = given(RUN, *HISTORIES[Status.CANCEL_REQUESTED])
    run.when(RequestCancel(by="c", reason="other", intent=CancelIntent.STOP, at=99)).then()


def test_a_cancel_can_only_become_harder() -> None:
    """From a flag to an interrupt to force, and never back."""
    run = given(RUN, *HISTORIES[Status.CANCEL_REQUESTED])
    harder = run.when(RequestCancel(by="b", mode=CancelMode.FORCE, at=9, deadline=10)).then(
        CancelEscalated(mode=CancelMode.FORCE, at=9, deadline=10)
    )
    harder.when(RequestCancel(by="b", mode=CancelMode.INTERRUPT, at=10)).then()
    assert harder.state.cancel.at == CANCELING.at


def test_a_run_may_finish_in_spite_of_a_cancel() -> None:
    """What happened is recorded, and that it was asked to stop stays visible (R81)."""
    run = given(RUN, *HISTORIES[Status.CANCEL_REQUESTED]).when(finish(Outcome.SUCCEEDED)).allowed()
    assert run.state.status is Status.SUCCEEDED
    assert run.state.cancel == CANCELING


# Outputs


@pytest.mark.parametrize(
    "progress",
    [
        math.nan,
        math.inf,
        -math.inf,
        True,
        -0.1,
        -5e-324,
        math.nextafter(1, 2),
        1.05,
        2,
        "0.5",
        None,
    ],
)
def test_progress_is_a_number_from_zero_to_one(progress: Any) -> None:
    """Anything else is refused and nothing changes (R16, R17)."""
    report = ProgressReported(progress=progress, message=None, at=0)
    given(RUN, *HISTORIES[Status.RUNNING]).when(deliver(report)).refused(Invalid, "from 0.0 to 1.0")


@pytest.mark.parametrize("progress", [0, 0.0, 0.3, 1, 1.0])
def test_progress_may_go_down_and_changes_no_status(progress: float) -> None:
    """It is the entry's own idea of how far it is (R18, R20)."""
    run = given(RUN, *HISTORIES[Status.RUNNING], ProgressReported(progress=0.9, message="m", at=0))
    after = run.when(deliver(ProgressReported(progress=progress, message=None, at=0))).allowed()
    assert (after.state.progress, after.state.status) == (progress, Status.RUNNING)


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
def test_progress_changes_no_status_whatever_the_status(status: Status, progress: float) -> None:
    """Reported or refused, folded in any status: it stays as it is (R18)."""
    before: Run = given(RUN, *HISTORIES[status]).state
    report = ProgressReported(progress=progress, message="m", at=4 * SECOND)
    assert evolve(before, report).status is status
    try:
        events = decide(before, deliver(report, epoch=before.epoch))
    except Refusal:
        assert status not in {Status.RUNNING, Status.CANCEL_REQUESTED}
    else:
        assert events == (report,)
        assert status in {Status.RUNNING, Status.CANCEL_REQUESTED}


def test_a_stage_is_no_status() -> None:
    """A label for people leaves the status alone (R100)."""
    stage = StageChanged(stage="loading", message="...", at=0)
    run = given(RUN, *HISTORIES[Status.RUNNING]).when(deliver(stage)).allowed().state
    assert (run.stage, run.message, run.status) == ("loading", "...", Status.RUNNING)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"type": "movie"}, "one of text, url"),
        ({"type": "url"}, "has no text"),
        ({"type": "url", "text": None}, "needs its url"),
        ({"type": "binary", "text": None}, "needs its binary"),
        ({"type": "text", "text": None}, "needs its text"),
        ({"number": 2}, "cannot follow 0 others"),
    ],
)
def test_an_export_has_the_content_of_its_type(content: dict[str, Any], reason: str) -> None:
    """Unknown types, missing or foreign contents and wrong numbers are refused (R47, R48)."""
    run = given(RUN, *HISTORIES[Status.RUNNING])
    run.when(deliver(export(**content))).refused(Invalid, reason)


def test_every_type_of_export_is_accepted() -> None:
    """Text, addresses, bytes and JSON, null included (R47)."""
    run = given(RUN, *HISTORIES[Status.RUNNING])
    items = (
        export(1),
        export(2, type="url", text=None, url="https://example.org"),
        export(3, type="binary_url", text=None, binary_url="blob:1"),
        export(4, type="binary", text=None, binary=b""),
        export(5, type="json", text=None, json={"a": [1]}),
        export(6, type="json", text=None),
    )
    assert run.when(deliver(*items)).then(*items).state.exports == 6


def test_a_result_names_items_that_exist() -> None:
    """Also those of the same delivery, and no others; the newest marking counts (R29)."""
    run = given(RUN, *HISTORIES[Status.RUNNING])
    run.when(deliver(ResultMarked(items=(1,), at=0))).refused(Invalid, "export 1")
    run.when(deliver(ResultMarked(items=(1,), at=0), export(1))).refused(Invalid, "export 1")
    marked = run.when(deliver(export(1), export(2), ResultMarked(items=(2, 1), at=0))).allowed()
    assert marked.state.result == ()
    again = marked.when(finish(Outcome.CANCELED, ResultMarked(items=(2,), at=0))).allowed()
    assert again.state.result == (2,)


# Questions


ASKED = QuestionAsked(step="s", question_id="q", question={"text": "?"}, at=0)


def test_a_question_is_answered_once() -> None:
    """The same answer again is no error, another one is."""
    run = given(RUN, *HISTORIES[Status.RUNNING]).when(deliver(ASKED)).then(ASKED)
    assert run.state.open_questions == {"q"}
    answer = Answer(question_id="q", answer=[1], by="b", at=7)
    answered = run.when(answer).then(Answered(question_id="q", answer=[1], by="b", at=7))
    assert answered.state.open_questions == frozenset()
    answered.when(answer).then()
    answered.when(Answer(question_id="q", answer=2, by="b", at=8)).refused(AnsweredOtherwise)


def test_a_run_that_is_ending_takes_no_answers() -> None:
    """Whoever answers learns that it is too late."""
    run = given(RUN, *HISTORIES[Status.RUNNING], ASKED, CANCELING)
    run.when(Answer(question_id="q", answer=1, by="b", at=0)).refused(NotNow, "cancel_requested")


# Whatever happens


RIGHT = -1  # stands for the epoch that a command has to name


def random_commands() -> st.SearchStrategy[RunCommand]:
    """Commands of any kind, from executions of any epoch, most of them of the right one."""
    epochs, times = st.just(RIGHT) | st.integers(0, 4), st.integers(0, 100 * SECOND)
    progress = st.floats(0.0, 1.0) | st.sampled_from([-0.01, 1.01, 1.04]) | st.floats()
    reports = st.builds(ProgressReported, progress=progress, message=st.none(), at=st.just(0))
    outputs = st.lists(
        reports
        | st.sampled_from(
            [
                export(1),
                export(2),
                ResultMarked(items=(1,), at=0),
                StepRecorded(step="s", value=1, at=0),
                ASKED,
            ]
        ),
        max_size=3,
    ).map(tuple)
    return st.one_of(
        st.builds(Activate, host=st.just("h"), epoch=epochs, plugin_version=st.just("1"), at=times),
        st.builds(Deactivate, epoch=epochs, at=times),
        st.builds(Deliver, epoch=epochs, outputs=outputs, at=times),
        st.builds(Deliver, epoch=st.just(RIGHT), outputs=st.tuples(reports), at=times),
        st.builds(
            Finish,
            epoch=epochs,
            outcome=st.sampled_from(Outcome),
            error=st.sampled_from([None, BOOM]),
            outputs=outputs,
            at=times,
        ),
        st.builds(
            RequestCancel,
            by=st.just("b"),
            at=times,
            mode=st.sampled_from(CancelMode),
            intent=st.sampled_from(CancelIntent),
        ),
        st.builds(
            Answer, question_id=st.just("q"), answer=st.integers(0, 1), by=st.just("b"), at=times
        ),
        st.builds(Recover, resumes=st.booleans(), compatible=st.booleans(), at=times),
    )


@hypothetically(st.lists(random_commands(), max_size=30))
def test_no_sequence_of_commands_breaks_the_machine(commands: list[RunCommand]) -> None:
    """One status at a time, only allowed moves, one end, nothing after it (R1, R11, R12).

    Progress is null or within its bounds, whatever was reported (R16).
    """
    run: Run = evolve(None, CREATED)
    ends = 0
    for given_command in (ACTIVATE, *commands):
        command = given_command
        if isinstance(command, Activate | Deactivate | Deliver | Finish) and command.epoch == RIGHT:
            is_next = isinstance(command, Activate)
            command = replace(command, epoch=run.epoch + is_next)
        try:
            events = decide(run, command)
        except Refusal:
            continue
        for event in events:
            assert not run.status.is_terminal
            after = evolve(run, event)
            assert after.status is run.status or after.status in TRANSITIONS[run.status].values()
            assert after.progress is None or 0 <= after.progress <= 1
            assert not after.result or after.status.is_terminal
            run = after
            ends += isinstance(event, RunEnded)
    assert ends == run.status.is_terminal
    assert RUN.thaw(RUN.freeze(run)) == run
