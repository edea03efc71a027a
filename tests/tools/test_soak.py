from __future__ import annotations

import sys
from itertools import permutations
from pathlib import Path

import pytest

from tools.soak import PARTS, RECORD, Outcome, Part, main, named_items, run
from tools.soak_record import (
    FIGURES,
    ITEMS,
    PARTS_HEADING,
    TESTS_HEADING,
    SoakedTest,
    recorded,
    soaked_outcomes,
)

TABLE = """\
Before.

| part | date | revision | volume | seconds | result |
|---|---|---|---|---:|---|
| crash |  |  |  |  | not run yet |
| server | d | r | v | 5 | 1 passed |

Between.

| part | test | items | result |
|---|---|---|---|
| server | tests.test_a.test_one | R1 R20 | failed |
| server | tests.test_b.test_two | R2 | passed: 5 ms: fast |

After.
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite with a test that passes, one that is skipped, and some that fail in their ways."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = soak\n")
    (tmp_path / "test_sample.py").write_text(
        "import os, pytest\n"
        "def test_good(request):\n"
        f"    request.node.user_properties.append(('{ITEMS}', 'R2 R10'))\n"
        f"    request.node.user_properties.append(('{FIGURES}', '5 ms'))\n"
        "def test_told(): assert os.environ['SOAKED'] == 'yes'\n"
        "@pytest.mark.skip\ndef test_skipped(): pass\n"
        "def test_bad(): assert False\n"
        "@pytest.fixture\ndef broken(): raise ValueError\n"
        "def test_broken(broken): pass\n"
    )
    return tmp_path


def soaked(suite: Path, *options: str) -> Outcome:
    """What a part of that suite comes to."""
    place = (f"--rootdir={suite}", "-c", str(suite / "pytest.ini"), str(suite), "-q")
    variables = {"SOAKED": "yes", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # which would take long
    return run(Part(volume="all", runs=[place, place], variables=variables), options)


def test_all_runs_of_a_part_are_counted(suite: Path) -> None:
    """Failures and errors are failures; what is skipped has not passed."""
    outcome = soaked(suite)
    assert (outcome.passed, outcome.failed) == (4, 4)
    assert not outcome.is_good
    assert str(outcome) == "4 passed, 4 failed"
    assert outcome.seconds > 0


def test_a_part_in_which_all_tests_pass_is_good(suite: Path) -> None:
    """With a result that says how many."""
    outcome = soaked(suite, "-k", "good or told")
    assert outcome.is_good
    assert str(outcome) == "4 passed"
    (test,) = outcome.tests  # the other one names no item
    assert test.cells() == ["test_sample.test_good", "R2 R10", "passed: 5 ms"]


@pytest.mark.parametrize("outcomes", sorted(set(permutations(["passed", "failed", "passed"]))))
def test_a_test_passed_if_all_its_variants_did(outcomes: tuple[str, ...]) -> None:
    """One that failed decides, whichever comes first; one that names no item has no row."""
    (test,) = named_items(
        SoakedTest(test=name, items=items, outcome=outcome)
        for outcome in outcomes
        for name, items in [("a", frozenset({"R1"})), ("b", frozenset[str]())]
    )
    assert (test.test, test.outcome) == ("a", "failed")


def test_a_part_that_runs_nothing_is_not_good(suite: Path) -> None:
    """Nor is one in which pytest itself fails."""
    assert not soaked(suite, "-k", "nothing-of-the-kind").is_good
    assert soaked(suite, "--no-such-option").failed == 2


def test_a_row_is_replaced_and_the_rest_is_left_alone() -> None:
    """Rows keep their order; a part that had none gets one."""
    once = recorded(TABLE, PARTS_HEADING, "crash", [["1", "2", "3", "4", "5"]])
    assert once == TABLE.replace(
        "| crash |  |  |  |  | not run yet |", "| crash | 1 | 2 | 3 | 4 | 5 |"
    )
    twice = recorded(once, PARTS_HEADING, "fuzz", [["6", "7", "8", "9", "0"]])
    assert twice.splitlines()[3:7] == [
        "|---|---|---|---|---:|---|",
        "| crash | 1 | 2 | 3 | 4 | 5 |",
        "| fuzz | 6 | 7 | 8 | 9 | 0 |",
        "| server | d | r | v | 5 | 1 passed |",
    ]
    assert twice.partition("Between.")[2] == TABLE.partition("Between.")[2]


def test_all_rows_of_a_part_are_replaced_together() -> None:
    """A test that the part no longer has is no longer in the record."""
    rows = [["tests.test_c.test_three", "R3", "passed"], ["tests.test_b.test_two", "R2", "skipped"]]
    text = recorded(TABLE, TESTS_HEADING, "server", rows)
    assert soaked_outcomes(text) == {
        "tests.test_b.test_two": "skipped",
        "tests.test_c.test_three": "passed",
    }
    assert text.partition("Between.")[0] == TABLE.partition("Between.")[0]
    assert text.endswith("\n\nAfter.\n")
    more = recorded(text, TESTS_HEADING, "crash", [["tests.test_d.test_four", "R4", "passed"]])
    assert list(soaked_outcomes(more)) == [
        "tests.test_d.test_four",
        "tests.test_b.test_two",
        "tests.test_c.test_three",
    ]


def test_a_result_is_read_without_its_figures() -> None:
    """Of tests with a row; a page without the table has none."""
    assert soaked_outcomes(TABLE) == {
        "tests.test_a.test_one": "failed",
        "tests.test_b.test_two": "passed",
    }
    assert soaked_outcomes("Nothing.\n") == {}


def test_the_record_has_a_row_for_each_part() -> None:
    """The committed file is one that the tool can write to."""
    text = RECORD.read_text("utf-8")
    for part in PARTS:
        assert f"\n| {part} |" in text
        changed = recorded(text, PARTS_HEADING, part, [["a", "b", "c", "d", "e"]])
        assert f"\n| {part} | a | b | c | d | e |\n" in changed
        assert len(changed.splitlines()) == len(text.splitlines())
        tests = recorded(text, TESTS_HEADING, part, [["a", "R1", "passed"]])
        assert soaked_outcomes(tests)["a"] == "passed"


def test_a_run_is_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With options for pytest it is not: it was not the whole part."""
    record = tmp_path / "soak.md"
    record.write_text(TABLE)
    asked: list[tuple[Part, list[str]]] = []

    def fake(part: Part, options: list[str]) -> Outcome:
        asked.append((part, options))
        test = SoakedTest(test="tests.test_c.test_x", items=frozenset({"R7"}), outcome="passed")
        return Outcome(passed=3, failed=0, seconds=61.7, tests=[test])

    monkeypatch.setattr(sys.modules["tools.soak"], "RECORD", record)
    monkeypatch.setattr(sys.modules["tools.soak"], "run", fake)
    assert main(["crash", "--pytest", "-x -k 'a b'"]) == 0
    assert record.read_text() == TABLE
    assert main(["crash"]) == 0
    assert asked == [(PARTS["crash"], ["-x", "-k", "a b"]), (PARTS["crash"], [])]
    row, test = (line for line in record.read_text().splitlines() if line.startswith("| crash"))
    assert row.endswith(f"| {PARTS['crash'].volume} | 62 | 3 passed |")
    assert test == "| crash | tests.test_c.test_x | R7 | passed |"
    assert "3 passed in 62 s" in capsys.readouterr().out


def test_a_part_that_fails_fails_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The other parts are run all the same."""
    record = tmp_path / "soak.md"
    record.write_text(TABLE)
    outcomes = iter([Outcome(passed=1, failed=1, seconds=1)])
    monkeypatch.setattr(sys.modules["tools.soak"], "RECORD", record)
    monkeypatch.setattr(
        sys.modules["tools.soak"],
        "run",
        lambda *_: next(outcomes, Outcome(passed=1, failed=0, seconds=1)),
    )
    assert main([]) == 1
    assert record.read_text().count("1 passed") == len(PARTS)
    assert record.read_text().count("1 failed") == 1


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With those that there are."""
    with pytest.raises(SystemExit, match="2"):
        main(["crush"])
    assert "crash, fuzz, server, simulation" in capsys.readouterr().err
