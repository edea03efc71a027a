from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from perdure.actors.errors import Invalid, TooLarge
from perdure.actors.run.events import (
    RUN_EVENTS,
    LogBatch,
    Output,
    ProgressReported,
    ResultMarked,
    ResultRef,
    StageChanged,
)
from perdure.actors.run.output import (
    MAX_BINARY,
    MAX_OUTPUT,
    check_output,
    check_progress,
    checked_size,
    inline_bytes,
    readable,
)
from perdure.actors.run.report_bounds import MAX_LABEL, MAX_MESSAGE
from perdure.eventlog.errors import CodecError
from tests.actors.test_run_core import export

ENVELOPE: Any = {"event_id": bytes(16), "event_time": 0}


def refused(output: Output, exports: int = 0) -> str:
    """Why an output is refused."""
    with pytest.raises(Invalid) as refusal:
        check_output(output, exports)
    return str(refusal.value)


def test_messages_and_stages_may_be_as_long_as_their_limit() -> None:
    """What just fits, or is not there, is accepted."""
    message, label = "m" * MAX_MESSAGE, "s" * MAX_LABEL
    for output in (
        ProgressReported(progress=0.5, message=message, at=0),
        ProgressReported(progress=0.5, message=None, at=0),
        StageChanged(stage=label, message=message, at=0),
        StageChanged(stage=label, message=None, at=0),
        ProgressReported(progress=0.5, message=None, stage=label, at=0),
        LogBatch(lines=(), dropped=0, at=0),
    ):
        check_output(output, 0)


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (
            ProgressReported(progress=0.5, message="m" * 4097, at=0),
            "a message has 4097 characters; at most 4096 are allowed",
        ),
        (
            StageChanged(stage="s", message="m" * 4097, at=0),
            "a message has 4097 characters; at most 4096 are allowed",
        ),
        (
            StageChanged(stage="s" * 65, message=None, at=0),
            "a stage has 65 characters; at most 64 are allowed",
        ),
        (
            ProgressReported(progress=0.5, message=None, stage="s" * 65, at=0),
            "a stage has 65 characters; at most 64 are allowed",
        ),
    ],
    ids=["progress", "stage", "label", "both"],
)
def test_whatever_is_too_long_is_named_with_both_lengths(output: Output, why: str) -> None:
    """Whoever reads the refusal knows what to shorten, and by how much."""
    assert refused(output) == why


@pytest.mark.parametrize(
    ("progress", "why"),
    [("0.5", "not a str"), (True, "not a bool"), (None, "not a NoneType"), (1.5, "not 1.5")],
)
def test_a_progress_that_is_none_is_shown(progress: Any, why: str) -> None:
    """The refusal says what came instead of a number from nought to one."""
    with pytest.raises(Invalid, match=f"^progress is a number from 0.0 to 1.0, {why}$"):
        check_progress(progress)


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (ResultMarked(items=(1, 0, 9), at=0), "export 0 cannot be a result: there is none"),
        (ResultMarked(items=(1, 3), at=0), "export 3 cannot be a result: there is none"),
        (
            ResultMarked(items=(1, 2), refs=(ResultRef(type="text"),), at=0),
            "2 items are the result, and 1 of them are described",
        ),
        (export(4), "export 4 cannot follow 2 others"),
        (export(2), "export 2 cannot follow 2 others"),
        (
            export(3, type="movie"),
            "an export is one of text, url, binary_url, binary, json, not 'movie'",
        ),
        (export(3, url="u"), "an export of type text has no url"),
        (export(3, binary=b"", url="u"), "an export of type text has no binary"),
        (export(3, text=None), "an export of type text needs its text"),
    ],
)
def test_an_output_that_does_not_fit_is_refused_with_the_reason(output: Output, why: str) -> None:
    """Two items came before each."""
    assert refused(output, 2) == why


def test_a_result_may_name_the_first_and_the_last_item() -> None:
    """Items are counted from one."""
    check_output(ResultMarked(items=(1, 2), at=0), 2)


def test_bytes_may_come_as_base64() -> None:
    """Text is decoded, bytes are taken as they are."""
    assert inline_bytes("AP8=") == inline_bytes(b"\x00\xff") == b"\x00\xff"


@pytest.mark.parametrize("data", ["AP8", "A P8=", "\u00e9"])
def test_what_is_not_base64_is_refused(data: str) -> None:
    """Nothing is guessed or skipped."""
    with pytest.raises(Invalid, match=r"^this is not base64: .") as refusal:
        inline_bytes(data)
    assert isinstance(refusal.value.__cause__, ValueError)


def test_an_item_holds_only_so_many_bytes_itself() -> None:
    """Counted after decoding; what just fits is accepted."""
    most = bytes(MAX_BINARY)
    assert inline_bytes(most) == inline_bytes(b64encode(most).decode()) == most
    with pytest.raises(TooLarge) as refusal:
        inline_bytes(most + b"x")
    assert (refusal.value.size, refusal.value.limit) == (MAX_BINARY + 1, MAX_BINARY)


def test_an_output_may_be_as_large_as_its_limit() -> None:
    """Its size is what it takes when it is stored; one byte more is refused with both sizes."""
    around = checked_size(export(1, text="x" * 100_000)) - 100_000
    most = export(1, text="x" * (MAX_OUTPUT - around))
    assert checked_size(most) == len(RUN_EVENTS.encode(most, **ENVELOPE).body) == MAX_OUTPUT
    with pytest.raises(TooLarge) as refusal:
        checked_size(export(1, text="x" * (MAX_OUTPUT - around + 1)))
    assert (refusal.value.size, refusal.value.limit) == (MAX_OUTPUT + 1, MAX_OUTPUT)


def test_an_output_that_cannot_be_stored_is_refused_with_the_place() -> None:
    """As the codec names it."""
    with pytest.raises(Invalid, match="NUL") as refusal:
        checked_size(export(1, text="a\0b"))
    assert isinstance(refusal.value.__cause__, CodecError)
    assert str(refusal.value) == str(refusal.value.__cause__)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("plain", "plain"),
        ("", ""),
        ("h\u00e9, \u4e16\u754c", "h\u00e9, \u4e16\u754c"),
        ("a\0b", "a\ufffdb"),
        ("\u00e9\0", "\u00e9\ufffd"),
        ("a\ud800b", "a?b"),
    ],
)
def test_what_people_read_is_stored_as_well_as_can_be(text: str, stored: str) -> None:
    """What no encoding knows is replaced; nobody loses a run for a bad character in a message."""
    assert readable(text, "a message") == stored


@pytest.mark.parametrize(("value", "name"), [(5, "int"), (None, "NoneType"), (b"x", "bytes")])
def test_what_is_no_text_is_named(value: Any, name: str) -> None:
    """With what it was meant to be, and what it is."""
    with pytest.raises(Invalid, match=f"^a stage is a text, not a {name}$"):
        readable(value, "a stage")
