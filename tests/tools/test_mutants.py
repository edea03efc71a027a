from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.second_names import SECOND_NAMES
from tools.mutants import __main__ as command
from tools.mutants.__main__ import EXCLUSIONS, ROOT
from tools.mutants.score import (
    BadExclusion,
    Exclusion,
    Mutant,
    Score,
    changed_lines,
    read_exclusions,
)

DIFF = """\
--- actors/run/core.py
+++ actors/run/core.py
@@ -5,4 +5,3 @@
     return RunError(
         code="TIMEOUT",
-        retriable=True,
-    )
+        )
"""
ENTRY = """\
[[exclusion]]
function = "perdure.actors.run.core._ended"
before = "a"
after = "b"
reason = "nobody can tell"
"""


def mutant(number: int = 1, status: str = "survived", after: str = "b") -> Mutant:
    """A mutant of one function."""
    return Mutant(f"perdure.actors.run.core.x__ended__mutmut_{number}", status, "a", after)


@pytest.mark.parametrize(
    ("name", "module", "function"),
    [
        (
            "perdure.actors.claim.x_request_hash__mutmut_1",
            "perdure.actors.claim",
            "perdure.actors.claim.request_hash",
        ),
        (
            "perdure.actors.claim.x__ordered__mutmut_12",
            "perdure.actors.claim",
            "perdure.actors.claim._ordered",
        ),
        (
            "perdure.actors.mailbox.x\u01c1Actor\u01c1__init____mutmut_3",
            "perdure.actors.mailbox",
            "perdure.actors.mailbox.Actor.__init__",
        ),
    ],
)
def test_a_mutant_is_named_after_what_was_changed(name: str, module: str, function: str) -> None:
    """As people write it, for the report and for exclusions."""
    assert (Mutant(name, "killed").module, Mutant(name, "killed").function) == (module, function)


@pytest.mark.parametrize(
    ("status", "killed"),
    [("killed", True), ("timeout", True), ("survived", False), ("no tests", False)],
)
def test_a_mutant_that_hangs_is_killed_and_one_that_is_never_run_is_not(
    status: str, *, killed: bool
) -> None:
    """Only what a test would notice counts."""
    assert mutant(status=status).is_killed == killed


def test_a_change_is_shown_on_two_lines() -> None:
    """What a diff takes away, and what it puts there."""
    assert changed_lines(DIFF) == ("retriable=True, )", ")")


def test_an_exclusion_is_about_one_change_of_one_function() -> None:
    """Another change of the same line is not excluded with it."""
    (exclusion,) = read_exclusions(ENTRY)
    assert exclusion.covers(mutant(after="b"))
    assert not exclusion.covers(mutant(after="c"))
    assert not exclusion.covers(
        Mutant("perdure.actors.claim.x__ended__mutmut_1", "survived", "a", "b")
    )


@pytest.mark.parametrize(
    "text",
    [
        ENTRY.replace('reason = "nobody can tell"\n', ""),
        ENTRY.replace("nobody can tell", " "),
        ENTRY.replace('after = "b"\n', ""),
        ENTRY + 'lines = "5-9"\n',
        ENTRY.replace('after = "b"', 'after = ["b", "c"]'),
    ],
    ids=["no reason", "an empty reason", "half a change", "something else", "many changes"],
)
def test_an_exclusion_without_a_reason_or_an_exact_change_is_refused(text: str) -> None:
    """Nothing is left out by the handful, or in silence."""
    with pytest.raises(BadExclusion):
        read_exclusions(text)


def test_the_score_leaves_out_what_is_excluded() -> None:
    """99 of 100 are enough; the next does not count."""
    exclusions = read_exclusions(ENTRY)
    killed = [mutant(number, "killed") for number in range(99)]
    score = Score([*killed, mutant(after="c"), mutant()], exclusions)
    assert (score.killed, score.counted, score.is_enough) == (99, 100, True)
    assert "99 of 100 mutants were killed: 99.0% (at least 99%), 1 excluded" in score.report()
    assert "survived: perdure.actors.run.core._ended\n  - a\n  + c\n" in score.report()
    assert not Score([*killed, mutant(after="c"), mutant()], ()).is_enough
    assert not Score([], ()).is_enough


def test_an_exclusion_that_is_not_needed_is_reported() -> None:
    """The code has changed since, or a test notices now."""
    exclusion = Exclusion(
        function="perdure.actors.run.core._ended", before="a", after="b", reason="r"
    )
    assert Score([mutant()], [exclusion]).unused == []
    score = Score([mutant(status="killed")], [exclusion])
    assert score.unused == [exclusion]
    assert "excluded, but lives no more: perdure.actors.run.core._ended" in score.report()


def test_what_is_excluded_now_has_reasons() -> None:
    """The file can be read, and says nothing twice."""
    exclusions = read_exclusions(EXCLUSIONS.read_text("utf-8"))
    assert len({(e.function, e.before, e.after) for e in exclusions}) == len(exclusions)


def test_modules_are_mutated_under_their_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are reached through perdure; tests could not import them without it."""
    work = tmp_path / "work"
    monkeypatch.setattr(command, "WORK", work)
    command.prepare()
    (source,) = tomllib.loads((work / "pyproject.toml").read_text("utf-8"))["tool"]["mutmut"][
        "source_paths"
    ]
    found = {path.relative_to(work / source).as_posix() for path in (work / source).rglob("*.py")}
    actors = ROOT / "actors"
    assert found == {path.relative_to(actors).as_posix() for path in actors.rglob("*.py")}
    assert SECOND_NAMES & {path.name for path in work.iterdir()} == set()
