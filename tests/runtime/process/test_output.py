"""What a process prints becomes lines, however it arrives."""

from __future__ import annotations

from itertools import pairwise

import pytest

from runtime.process.output import Line, Output
from runtime.secrets.redaction import REDACTED, Redactor

PRINTED = b"one\ntwo \xc3\xbc\n\n" + b"x" * 30 + b"\nlast"


@pytest.mark.parametrize("first", range(len(PRINTED)))
def test_lines_are_the_same_wherever_the_output_is_cut(first: int) -> None:
    """In two pieces, and byte by byte."""
    expected = [
        Line("one", is_cut=False),
        Line("two \u00fc", is_cut=False),
        Line("", is_cut=False),
        Line("x" * 20, is_cut=True),
        Line("last", is_cut=False),
    ]
    for cuts in ([0, first, len(PRINTED)], list(range(len(PRINTED) + 1))):
        output = Output(longest=20)
        lines = [line for start, end in pairwise(cuts) for line in output.feed(PRINTED[start:end])]
        assert lines + output.take_rest() == expected
        assert output.take_rest() == []


def test_an_endless_line_is_not_held() -> None:
    """Only its beginning is."""
    output = Output(longest=20)
    for _ in range(1000):
        assert output.feed(b"y" * 100) == []
    assert len(output._rest) == 20
    assert output.feed(b"\nnext\n") == [Line("y" * 20, is_cut=True), Line("next", is_cut=False)]


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
