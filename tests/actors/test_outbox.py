from __future__ import annotations

import pytest

from perdure.actors.errors import Invalid
from perdure.actors.run.events import (
    ChildStarted,
    ExportAppended,
    LogBatch,
    ProgressReported,
    QuestionAsked,
    ResultMarked,
    RunEvent,
    SleepBegun,
    StageChanged,
    StepRecorded,
)
from perdure.actors.run.history import History
from perdure.actors.run.log_lines import MAX_LINES
from perdure.actors.run.outbox import MAX_ITEMS, Outbox
from perdure.actors.run.reports import WINDOW

MS = 1_000_000


def outbox(history: History | None = None) -> Outbox:
    """An outbox of a run that started at zero."""
    return Outbox(history or History(), started_at=0)


def test_a_burst_of_progress_is_thinned_and_the_last_value_always_leaves() -> None:
    """A thousand reports in a second leave about ten times (R19, R42, R112)."""
    box = outbox()
    left: list[ProgressReported] = []
    for tick in range(1000):
        now = tick * MS
        box.progress(tick / 1000, None, now)
        left.extend(o for o in box.take(now) if isinstance(o, ProgressReported))
    left.extend(o for o in box.take(1000 * MS, last=True) if isinstance(o, ProgressReported))
    assert 10 <= len(left) <= 12
    assert left[-1].progress == 0.999


def test_a_run_of_days_reports_seldom() -> None:
    """The window grows with the age of the run."""
    day = 86_400_000 * MS
    box = outbox()
    box.progress(0.1, None, day)
    assert box.take(day)
    box.progress(0.2, None, day + 1000 * MS)
    assert box.take(day + 1000 * MS) == ()
    assert box.due(day + 1000 * MS) == day + day // 1000


def test_two_outboxes_are_independent() -> None:
    """One run's reports do not delay another's (R113)."""
    first, second = outbox(), outbox()
    first.progress(0.1, None, 0)
    second.progress(0.1, None, 0)
    assert first.take(0)
    assert second.take(0)


def test_the_latest_stage_and_progress_win() -> None:
    """What was overtaken never leaves, and the rest leaves as one report (R112)."""
    box = outbox()
    box.stage("a", None, 0)
    box.stage("b", "m", 1)
    box.progress(0.1, None, 2)
    box.progress(1, "x", 3)
    assert box.take(3) == (ProgressReported(progress=1.0, message="x", stage="b", at=3),)


def test_surplus_log_lines_are_counted() -> None:
    """A flood of lines costs no memory and does not pass unseen (R118)."""
    box = outbox()
    for number in range(MAX_LINES + 50):
        box.log("info", f"line {number}", number)
    (batch,) = box.take(0)
    assert isinstance(batch, LogBatch)
    assert (len(batch.lines), batch.dropped) == (MAX_LINES, 50)
    assert box.take(1) == ()


def test_exports_are_never_dropped_and_keep_their_order() -> None:
    """They leave at once, whatever the window; too many make the entry wait (R55, R118)."""
    box = outbox()
    box.progress(0.5, None, 0)
    box.take(0)
    numbers = [box.export("text", f"t{n}", 1) for n in range(MAX_ITEMS)]
    assert numbers == list(range(1, MAX_ITEMS + 1))
    assert box.is_full
    taken = box.take(1)
    assert [o.text for o in taken if isinstance(o, ExportAppended)] == [
        f"t{n}" for n in range(MAX_ITEMS)
    ]
    assert not box.is_full


def test_what_an_earlier_activation_exported_is_recognised() -> None:
    """Equal items by their count, keyed ones by their key; a new one goes on counting."""
    first = outbox()
    for text in ("a", "b", "a"):
        first.export("text", text, 0)
    first.export("text", "k", 0, key="key")
    history = History()
    for event in first.take(0):
        history.add(event)
    second = outbox(history)
    assert [second.export("text", text, 0) for text in ("a", "a", "b", "a")] == [1, 3, 2, 5]
    assert second.export("text", "other content", 0, key="key") == 4
    assert second.export("text", "c", 0) == 6
    assert [o.number for o in second.take(0) if isinstance(o, ExportAppended)] == [5, 6]


def test_a_key_names_one_export() -> None:
    """Within one activation too."""
    box = outbox()
    assert box.export("text", "a", 0, key="k") == box.export("text", "b", 0, key="k") == 1
    with pytest.raises(Invalid, match="key is a text that is not empty"):
        box.export("text", "a", 0, key="")


def test_results_name_what_was_exported() -> None:
    """Also what has not left yet (R29)."""
    box = outbox()
    number = box.export("json", {"a": 1}, 0, description="d")
    box.result((number,), 0)
    taken = box.take(0)
    assert isinstance(taken[1], ResultMarked)
    with pytest.raises(Invalid, match="export 9"):
        box.result((9,), 0)


RECORDED: tuple[RunEvent, ...] = (
    StageChanged(stage="loading", message=None, at=0),
    ProgressReported(progress=0.6, message=None, at=0),
    ProgressReported(progress=0.5, message=None, at=0),
    StepRecorded(step="a", value=1, at=0),
    SleepBegun(step="nap", until=9, at=0),
    QuestionAsked(step="who", question_id="q", question="?", at=0),
    ChildStarted(step="kid", child_run_id="r", at=0),
    StepRecorded(step="last", value=1, at=0),
)


def resumed(*more: RunEvent) -> Outbox:
    """The outbox of a run that goes on after a crash."""
    history = History()
    for event in (*RECORDED, *more):
        history.add(event)
    return outbox(history)


def is_heard(box: Outbox) -> bool:
    """Tell whether old reports would be heard."""
    box.progress(0.5, None, 0)
    box.stage("loading", None, 0)
    left = box.take(0, last=True)
    return left[-1:] == (ProgressReported(progress=0.5, message=None, stage="loading", at=0),)


def test_reports_are_muted_until_the_last_recorded_step() -> None:
    """A run that goes on does not jump back to its beginning in front of everybody."""
    box = resumed()
    assert not is_heard(box)
    for step in ("a", "nap", "who", "kid"):
        box.reached(step)
        assert not is_heard(box)
    box.reached("last")
    assert is_heard(box)
    assert is_heard(outbox())


def test_reports_are_heard_once_a_step_is_done_that_was_not_recorded() -> None:
    """The last one recorded may have no place in a version that was loaded since."""
    box = resumed()
    box.reached("new")
    assert is_heard(box)


def test_reports_are_heard_once_something_new_is_exported() -> None:
    """What was recorded is recognised, with a key and without, and mutes on."""
    first = outbox()
    first.export("text", "old", 0)
    first.export("text", "kept", 0, key="k")
    box = resumed(*first.take(0))
    box.export("text", "old", 0)
    box.export("text", "other", 0, key="k")
    assert not is_heard(box)
    box.export("text", "old", 0)
    assert is_heard(box)


def test_progress_beyond_all_that_was_recorded_is_heard() -> None:
    """And so is whatever is reported after it; the same progress again is not."""
    box = resumed()
    box.progress(0.6, None, 0)
    assert box.take(0, last=True) == ()
    box.progress(0.61, None, 0)
    (report,) = box.take(0, last=True)
    assert isinstance(report, ProgressReported)
    assert report.progress == 0.61
    assert is_heard(box)


def test_a_stage_that_was_never_recorded_is_heard() -> None:
    """And so is whatever is reported after it."""
    box = resumed()
    box.stage("loading", "again", 0)
    assert box.take(0, last=True) == ()
    box.stage("saving", None, 0)
    assert box.take(0, last=True) == (StageChanged(stage="saving", message=None, at=0),)
    assert is_heard(box)


def test_a_stage_that_was_recorded_with_progress_is_known() -> None:
    """It is not news when the entry names it again after a crash."""
    box = resumed(ProgressReported(progress=0.1, message=None, stage="both", at=0))
    box.stage("both", None, 0)
    assert box.take(0, last=True) == ()


def test_where_nothing_was_reported_the_first_report_is_heard() -> None:
    """There is nothing to jump back from."""
    box = outbox(History(last="s", values={"s": 1}))
    box.progress(0.0, None, 0)
    assert len(box.take(0, last=True)) == 1
    box = outbox(History(last="s", values={"s": 1}))
    box.stage("loading", None, 0)
    assert len(box.take(0, last=True)) == 1


def test_bad_values_are_refused_at_the_call() -> None:
    """Nothing waits in the outbox that could be refused later (R17, R48)."""
    box = outbox()
    with pytest.raises(Invalid):
        box.progress(1.1, None, 0)
    with pytest.raises(Invalid):
        box.export("text", None, 0)
    with pytest.raises(TypeError):
        box.export("movie", "x", 0)
    assert box.take(0, last=True) == ()
    assert box.due(0) is None


def test_a_flush_is_due_when_something_waits() -> None:
    """At once for items and lines, at the window for reports."""
    box = outbox()
    box.progress(0.1, None, 0)
    assert box.due(0) == 0
    box.take(0)
    box.progress(0.2, None, 1)
    assert box.due(1) == WINDOW
    box.log("info", "x", 1)
    assert box.due(1) == 1


def test_progress_that_is_exported_is_never_taken_for_an_export_of_the_entrys() -> None:
    """After a crash an equal text of the entry's own is a new item, or the one it was."""
    first = Outbox(History(), 0, progress_items=True)
    first.progress(0.5, None, 1)
    recorded = first.take(1)
    assert first.export("text", "50%", 2) == 2
    history = History()
    for event in [*recorded, *first.take(2)]:
        history.add(event)
    again = Outbox(history, 0, progress_items=True)
    assert again.export("text", "50%", 3) == 2
    assert again.export("text", "50%", 3) == 3
