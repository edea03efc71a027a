"""What a process says and prints becomes lines, however it arrives."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import pytest

from perdure.runtime.process.line_splitter import Line, LineSplitter
from perdure.runtime.process.messages import Malformed
from perdure.runtime.secrets.redaction import REDACTED, Redactor

PRINTED = b"one\ntwo \xc3\xbc\n\n" + b"x" * 30 + b"\nlast"
LONG = 100_000


@pytest.mark.parametrize("first", range(len(PRINTED)))
def test_lines_are_the_same_wherever_the_output_is_cut(first: int) -> None:
    """In two pieces, and byte by byte."""
    expected = [
        ("one", False),
        ("two \u00fc", False),
        ("", False),
        ("x" * 20, True),
        ("last", False),
    ]
    for cuts in ([0, first, len(PRINTED)], list(range(len(PRINTED) + 1))):
        output = LineSplitter(20, too_long="cut")
        lines = [line for start, end in pairwise(cuts) for line in output.feed(PRINTED[start:end])]
        assert [(line.text, line.is_cut) for line in lines + output.take_rest()] == expected
        assert output.take_rest() == []


def test_an_endless_line_is_not_held() -> None:
    """Only its beginning is."""
    output = LineSplitter(20, too_long="cut")
    for _ in range(1000):
        assert output.feed(b"y" * 100) == []
    assert len(output._rest) == 20
    assert output.feed(b"\nnext\n") == [Line(b"y" * 20, is_cut=True), Line(b"next")]


@pytest.mark.parametrize("step", [1, 7, 21, 100])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_message_that_is_too_long_is_refused(step: int, end: bytes) -> None:
    """With the first byte that is too many, whether its end has come or not."""
    lines = LineSplitter(20, too_long="refuse")
    assert lines.feed(b"x" * 20 + b"\n") == [Line(b"x" * 20)]
    said = b"y" * 21 + end
    pieces = [said[start : start + step] for start in range(0, len(said), step)]
    with pytest.raises(Malformed, match="more than 20 bytes"):
        [lines.feed(piece) for piece in pieces]
    assert len(lines._rest) <= 20


@pytest.mark.parametrize("too_long", ["refuse", "cut"])
def test_a_line_that_trickles_in_is_not_copied(too_long: Literal["refuse", "cut"]) -> None:
    """Byte by byte, what has come is added to, and nothing else is done."""
    lines = LineSplitter(LONG, too_long=too_long)
    held = lines._rest
    for _ in range(LONG):
        assert lines.feed(b"x") == []
        assert lines._rest is held
    assert lines.is_within_a_line
    assert lines.feed(b"\n") == [Line(b"x" * LONG)]
    assert not lines.is_within_a_line


@pytest.mark.parametrize("length", range(1, 40))
def test_the_beginning_of_a_text_ends_before_the_part_of_a_secret(length: int) -> None:
    """Wherever it is cut; a whole secret is redacted, and nothing is lost without secrets."""
    redactor = Redactor()
    assert redactor.beginning("text") == "text"
    redactor.register("canary-7f3a")
    shown = redactor.beginning(("ab canary-7f3a cd canary-7f3a ef " + "x" * 100)[:length])
    assert "can" not in shown
    assert ("ab " + REDACTED in shown) == (length >= len("ab canary-7f3a"))


def test_what_a_secret_of_several_lines_is_printed_as() -> None:
    """Line by line for people; what code gets back is refused only for the whole of it."""
    redactor = Redactor()
    redactor.register("-----BEGIN-----\n  MIIEvQIBADANBg\n}\n-----END-----\n")
    assert redactor.text("key: MIIEvQIBADANBg") == f"key: {REDACTED}"
    assert redactor.text("}") == "}"
    assert not redactor.finds("key: MIIEvQIBADANBg")
    assert redactor.finds("x-----BEGIN-----\n  MIIEvQIBADANBg\n}\n-----END-----")
    other = Redactor()
    other.learn_from(redactor)
    assert other.text("MIIEvQIBADANBg") == REDACTED
