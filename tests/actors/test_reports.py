"""Reports on their way out: what leaves together, how long, and when."""

from __future__ import annotations

import pytest

from perdure.actors.run.events import Output, ProgressReported, QuestionAsked, StageChanged
from perdure.actors.run.history import History
from perdure.actors.run.outbox import Outbox
from perdure.actors.run.output import check_output
from perdure.actors.run.report_bounds import MAX_LABEL, MAX_MESSAGE
from perdure.actors.run.reports import LONG_RUN, WINDOW
from tests.actors.test_outbox import outbox


def test_a_text_that_is_too_long_for_a_report_is_cut_with_a_mark() -> None:
    """It is for people: its end costs nobody a run, and its beginning is seen."""
    box = outbox()
    box.stage("s" * MAX_LABEL, "m" * MAX_MESSAGE, 0)
    box.progress(0.5, None, 0)
    fits, cut = box.take(0, last=True)[0], outbox()
    cut.stage("s" * (MAX_LABEL + 1), "m" * (MAX_MESSAGE + 1), 0)
    (stage,) = cut.take(0, last=True)
    cut.progress(0.5, "p" * 5000, 0)
    (progress,) = cut.take(0, last=True)
    assert isinstance(fits, ProgressReported)
    assert isinstance(stage, StageChanged)
    assert isinstance(progress, ProgressReported)
    assert (fits.stage, fits.message) == ("s" * MAX_LABEL, "m" * MAX_MESSAGE)
    assert stage.stage == "s" * (MAX_LABEL - 1) + "\u2026"
    assert stage.message == "m" * (MAX_MESSAGE - 1) + "\u2026"
    assert progress.message == "p" * (MAX_MESSAGE - 1) + "\u2026"
    for output in (fits, stage, progress):
        check_output(output, 0)


def test_the_window_of_a_long_run_is_a_whole_part_of_its_age() -> None:
    """Counted from its start; times are whole nanoseconds."""
    start, now = 7 * WINDOW, 7 * WINDOW + LONG_RUN * WINDOW * 3 + 1
    box = Outbox(History(), started_at=start)
    box.progress(0.1, None, now)
    box.take(now)
    box.progress(0.2, None, now)
    due = box.due(now)
    assert (due, type(due)) == (now + 3 * WINDOW, int)


def test_a_question_leaves_with_its_stage_and_the_progress_that_waits() -> None:
    """Whatever the window; another stage that waits never leaves, and old reports are heard."""
    box = outbox(History(last="s", values={"s": 1}, progress=0.9, stages={"input_required"}))
    box.progress(0.95, None, 0)
    box.take(0)
    box.progress(0.97, "p", 1)
    box.stage("s", None, 1)
    asked = QuestionAsked(step="q", question_id="q", question="?", at=2)
    box.ask(asked, "input_required", "?")
    assert box.due(2) == 2
    report = ProgressReported(progress=0.97, message="?", stage="input_required", at=2)
    assert box.take(2) == (asked, report)
    box.progress(0.1, None, 3)
    assert box.due(3) == 2 + WINDOW


@pytest.mark.parametrize(
    ("calls", "wanted"),
    [
        ([(0.5, None)], ProgressReported(progress=0.5, message=None, keeps_message=True, at=9)),
        ([(0.5, "a"), (0.6, None)], ProgressReported(progress=0.6, message="a", at=9)),
        ([("s", "a"), (0.6, None)], ProgressReported(progress=0.6, message="a", stage="s", at=9)),
        ([("s", None), (0.6, None)], ProgressReported(progress=0.6, message=None, stage="s", at=9)),
        ([("s", "a"), (0.6, "b")], ProgressReported(progress=0.6, message="b", stage="s", at=9)),
        ([(0.6, "b"), ("s", None)], ProgressReported(progress=0.6, message=None, stage="s", at=9)),
        ([(0.6, None), ("s", "a")], ProgressReported(progress=0.6, message="a", stage="s", at=9)),
        (
            [(0.1, None), (0.6, None)],
            ProgressReported(progress=0.6, message=None, keeps_message=True, at=9),
        ),
        ([("r", "a"), ("s", None)], StageChanged(stage="s", message=None, at=9)),
    ],
)
def test_what_is_reported_in_a_window_is_one_report(
    calls: list[tuple[float | str, str | None]], wanted: Output
) -> None:
    """Progress without a message leaves the message as it is; a stage without one has none."""
    box = outbox()
    for what, message in calls:
        if isinstance(what, str):
            box.stage(what, message, 9)
        else:
            box.progress(what, message, 9)
    assert box.take(9) == (wanted,)


def test_a_window_begins_when_the_report_before_was_stored() -> None:
    """Not when it was taken; what was stored without a report moves nothing."""
    box = outbox()
    box.progress(0.1, None, 0)
    box.take(0)
    box.stored(7)
    box.progress(0.2, None, 8)
    assert (box.due(8), box.take(6 + WINDOW)) == (7 + WINDOW, ())
    box.stored(9)
    assert box.due(8) == 7 + WINDOW
    assert len(box.take(7 + WINDOW)) == 1


def test_a_clock_that_is_set_back_delays_no_report() -> None:
    """The window that began in the future is over."""
    box = outbox()
    box.progress(0.1, None, 100 * WINDOW)
    box.take(100 * WINDOW)
    box.progress(0.2, None, 5)
    assert box.due(5) == 5
    assert len(box.take(5)) == 1
