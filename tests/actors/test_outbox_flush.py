"""What leaves an outbox, item by item and to the letter."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import pytest

from perdure.actors.errors import Invalid, TooLarge
from perdure.actors.run.events import (
    RUN_EVENTS,
    ExportAppended,
    LogBatch,
    LogLine,
    Output,
    ProgressReported,
    ResultMarked,
    ResultRef,
    StageChanged,
)
from perdure.actors.run.history import History, fingerprint
from perdure.actors.run.log_lines import MAX_LEVEL, MAX_LINE, MAX_LINE_BYTES, MAX_LINES
from perdure.actors.run.outbox import MAX_BYTES, PROGRESS_ITEMS, Outbox
from perdure.actors.run.reports import WINDOW


def outbox(history: History | None = None, *, progress_items: bool = False) -> Outbox:
    """An outbox of a run that started at zero."""
    return Outbox(history or History(), started_at=0, progress_items=progress_items)


def texts(taken: tuple[Output, ...]) -> list[str | None]:
    """The texts that were exported."""
    return [output.text for output in taken if isinstance(output, ExportAppended)]


def test_a_line_leaves_with_its_level_its_time_and_as_much_text_as_fits() -> None:
    """The batch has the time of the flush."""
    box = outbox()
    box.log("info", "short", 1)
    box.log("error", "x" * (MAX_LINE + 1), 2)
    assert box.take(5) == (
        LogBatch(
            lines=(
                LogLine(level="info", text="short", at=1),
                LogLine(level="error", text="x" * MAX_LINE, at=2),
            ),
            dropped=0,
            at=5,
        ),
    )


def test_dropped_lines_are_counted_for_each_flush() -> None:
    """What was dropped before the last flush is not counted again."""
    box = outbox()
    for _ in range(MAX_LINES + 1):
        box.log("info", "x", 0)
    box.take(0)
    box.log("info", "y", 1)
    (batch,) = box.take(1)
    assert isinstance(batch, LogBatch)
    assert batch.dropped == 0


def test_an_export_leaves_with_everything_that_was_said_of_it() -> None:
    """Its number, content, time, and what tells it from others."""
    box = outbox()
    box.export("text", "x", 3)
    box.export("text", "x", 4, description="d", mime="m", metadata={"a": 1})
    box.export("url", "u", 5, key="k")
    mark = fingerprint("text", "x")
    assert box.exports == 3
    assert box.take(9) == (
        ExportAppended(number=1, type="text", text="x", fingerprint=mark, occurrence=1, at=3),
        ExportAppended(
            number=2,
            type="text",
            text="x",
            fingerprint=mark,
            occurrence=2,
            at=4,
            description="d",
            mime="m",
            metadata={"a": 1},
        ),
        ExportAppended(
            number=3,
            type="url",
            url="u",
            fingerprint=fingerprint("url", "u"),
            occurrence=0,
            at=5,
            key="k",
        ),
    )


def test_the_same_content_of_another_type_is_another_export() -> None:
    """Also after a crash."""
    history = History(equal={(fingerprint("text", "x"), 1): 1}, exports=1)
    assert outbox(history).export("url", "x", 0) == 2
    assert outbox(history).export("text", "x", 0) == 1


def test_an_export_needs_a_key_with_something_in_it() -> None:
    """An empty one is refused, and nothing waits."""
    box = outbox()
    with pytest.raises(Invalid, match=r"^an export's key is a text that is not empty$"):
        box.export("text", "x", 0, key="")
    assert (box.exports, box.take(0)) == (0, ())


def test_a_result_leaves_with_its_time_and_is_remembered() -> None:
    """Whoever ends the run asks whether the entry has marked one."""
    box = outbox()
    before = box.marked_a_result
    box.export("text", "x", 0)
    box.result((1,), 7)
    assert (before, box.marked_a_result) == (False, True)
    assert box.take(9)[1] == ResultMarked(items=(1,), refs=(ResultRef(type="text"),), at=7)


def test_a_result_says_what_its_items_are() -> None:
    """Of items that an earlier activation exported too; a long description is cut."""
    first = outbox()
    first.export("json", {"a": 1}, 0, description="d" * 161)
    history = History()
    for event in first.take(0):
        history.add(event)
    box = outbox(history)
    box.export("url", "u", 0, key="k")
    box.result((2, 1), 7)
    refs = (ResultRef(type="url"), ResultRef(type="json", description="d" * 159 + "\u2026"))
    assert box.take(9)[-1] == ResultMarked(items=(2, 1), refs=refs, at=7)


def test_a_result_of_too_many_items_is_refused_at_the_call() -> None:
    """What could not be stored is known before it waits."""
    box = outbox()
    box.export("text", "x", 0, description="\u4e16" * 160)
    with pytest.raises(TooLarge):
        box.result((1,) * 2000, 0)
    assert not box.marked_a_result


@pytest.mark.parametrize(
    ("kind", "content"),
    [("text", "x" * 8192), ("binary", b"x" * 8192), ("json", ["x" * 8192])],
    ids=["text", "bytes", "json"],
)
def test_too_many_bytes_make_the_entry_wait(kind: str, content: Any) -> None:
    """What items take when they are stored is added up, and begins at nothing after each flush."""
    box = outbox()
    for _ in range(2):
        stored = 0
        while not box.is_full:
            assert stored < MAX_BYTES
            box.export(kind, content, 0)
            stored += RUN_EVENTS.check(box._items[-1])
        assert stored >= MAX_BYTES
        assert box.take(0)


def test_progress_is_exported_now_and_then_if_wanted() -> None:
    """At most twice a second, as its message or else in percent, with the number beside it."""
    box = outbox(progress_items=True)
    box.progress(0.25, None, 0)
    first = box.take(0)
    assert first == (
        ExportAppended(
            number=1,
            type="text",
            text="25%",
            fingerprint=fingerprint("text", "25%"),
            occurrence=0,
            at=0,
            key="perdure.progress-1",
            metadata={"progress": 0.25},
        ),
        ProgressReported(progress=0.25, message=None, keeps_message=True, at=0),
    )
    box.progress(0.5, None, 6)
    assert texts(box.take(PROGRESS_ITEMS - 1)) == []
    box.progress(0.75, "three quarters", 7)
    assert texts(box.take(PROGRESS_ITEMS, last=True)) == ["three quarters"]


def test_progress_is_not_exported_unless_wanted_or_while_it_waits_for_its_window() -> None:
    """An item never tells more than the report beside it."""
    box = outbox()
    box.progress(0.25, None, 0)
    assert texts(box.take(0)) == []
    box = outbox(progress_items=True)
    box.stage("s", None, 0)
    assert texts(box.take(0)) == []
    box.progress(0.25, None, 1)
    assert box.take(1) == ()
    assert texts(box.take(WINDOW)) == ["25%"]


@pytest.mark.parametrize(("letter", "size"), [("x", 1), ("\u00e9", 2)])
def test_lines_wait_up_to_so_many_bytes(letter: str, size: int) -> None:
    """Counted as they are stored, from nothing after each flush; the surplus is dropped."""
    for box in [outbox()] * 2:
        whole, rest = divmod(MAX_LINE_BYTES - size, MAX_LINE * size)
        for _ in range(whole):
            box.log("info", letter * MAX_LINE, 0)
        box.log("info", letter * (rest // size), 0)  # one letter less than there is room for
        box.log("info", letter, 0)
        box.log("info", letter, 0)
        (batch,) = box.take(0)
        assert isinstance(batch, LogBatch)
        assert (len(batch.lines), batch.dropped) == (whole + 2, 1)
        assert sum(len(line.text) * size for line in batch.lines) == MAX_LINE_BYTES


def test_an_outbox_is_full_at_its_last_byte() -> None:
    """And not a byte before, the first time and after each flush."""
    measure = outbox()
    measure.export("text", "x" * 100_000, 0)
    around = RUN_EVENTS.check(measure._items[0]) - 100_000
    fits = "x" * (MAX_BYTES - around - 1)
    box = outbox()
    box.export("text", fits, 0)
    assert not box.is_full
    box.take(0)
    box.export("text", fits[:-1] + "y", 0)
    assert not box.is_full
    box.take(0)
    box.export("text", fits + "y", 0)
    assert box.is_full


@pytest.mark.parametrize(
    ("put_out", "what"),
    [
        (lambda box: box.progress(0.5, 5, 0), "a message"),
        (lambda box: box.stage("s", 5, 0), "a message"),
        (lambda box: box.stage(5, None, 0), "a stage"),
        (lambda box: box.log(5, "text", 0), "a level"),
        (lambda box: box.log("info", 5, 0), "a log line"),
    ],
)
def test_what_is_no_text_is_refused_at_the_call(
    put_out: Callable[[Outbox], None], what: str
) -> None:
    """By what it was meant to be; nothing of it waits."""
    box = outbox()
    with pytest.raises(Invalid, match=f"^{what} is a text, not a int$"):
        put_out(box)
    assert box.due(0) is None


def test_what_cannot_be_stored_leaves_readable() -> None:
    """A line or a message is for people: a bad character costs nothing but itself."""
    box = outbox()
    box.log("in\0fo" + "x" * MAX_LEVEL, "a\ud800", 0)
    box.stage("s\0", "m\ud800", 0)
    box.progress(0.5, "p\0", 0)
    lines, report = box.take(0)
    assert isinstance(lines, LogBatch)
    assert lines.lines[0].text == "a?"
    assert lines.lines[0].level == ("in\ufffdfo" + "x" * MAX_LEVEL)[:MAX_LEVEL]
    assert report == ProgressReported(progress=0.5, message="p\ufffd", stage="s\ufffd", at=0)
    box.stage("s", "m\ud800", WINDOW)
    assert box.take(WINDOW) == (StageChanged(stage="s", message="m?", at=WINDOW),)


def test_a_text_of_a_type_of_the_entrys_own_leaves_as_text() -> None:
    """Enumerations of texts, for one, are texts too."""

    class Stage(StrEnum):
        LOADING = "loading"

    box = outbox()
    box.stage(Stage.LOADING, Stage.LOADING, 0)
    (stage,) = box.take(0, last=True)
    box.progress(0.5, Stage.LOADING, 0)
    (progress,) = box.take(0, last=True)
    assert isinstance(stage, StageChanged)
    assert isinstance(progress, ProgressReported)
    assert {type(text) for text in (stage.stage, stage.message, progress.message)} == {str}


def test_an_export_that_cannot_be_stored_says_why() -> None:
    """It comes back to code, so nothing in it is replaced."""
    box = outbox()
    with pytest.raises(Invalid, match=r"^an export cannot hold this: .+") as refusal:
        box.export("json", {"a": object()}, 0)
    assert str(refusal.value.__cause__) in str(refusal.value)
    assert (box.exports, box.due(0)) == (0, None)


def test_an_item_is_found_by_its_key() -> None:
    """Also one that an earlier activation recorded; no key finds nothing."""
    box = outbox(History(keyed={"old": 7}, exports=7))
    box.export("text", "a", 0, key="new")
    box.export("text", "b", 0)
    assert [box.number_of(key) for key in ("old", "new", "other", None)] == [7, 8, None, None]


def test_a_stage_that_is_dropped_never_leaves() -> None:
    """It is over, and so is its message; progress that waits stays."""
    box = outbox()
    box.stage("s", None, 0)
    box.drop_stage("t")  # which does not wait
    box.drop_stage("s")
    assert box.due(0) is None
    box.drop_stage("s")
    box.progress(0.5, "half", 0)
    box.stage("s", "m", 1)
    box.drop_stage("s")
    assert box.take(2, last=True) == (
        ProgressReported(progress=0.5, message=None, keeps_message=True, at=1),
    )
    box.stage("s", None, 0)
    box.drop_stage("t")
    assert len(box.take(3, last=True)) == 1
