"""Tests that need a program which others may not have."""

from __future__ import annotations

import re

import pytest

from tests.repository.tree import ROOT

PROGRAMS = ("bash", "chromium", "curl", "jq", "node", "promtool", "strace")
MISSING = """
import pytest
from tests.programs import require

@pytest.mark.needs("no-such-program", "sh")
def test_marked():
    pass

def test_asking():
    require("no-such-program")

@pytest.mark.needs("sh")
def test_there():
    require("sh")
"""


@pytest.mark.parametrize(
    ("ci", "outcomes"),
    [(None, {"passed": 1, "skipped": 2}), ("true", {"passed": 1, "failed": 1, "errors": 1})],
    ids=["here", "in CI"],
)
def test_a_missing_program_skips_its_tests_and_fails_them_in_ci(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    ci: str | None,
    outcomes: dict[str, int],
) -> None:
    """Named by a mark or asked for by the test, the message says which program is missing."""
    if ci is None:
        monkeypatch.delenv("CI", raising=False)
    else:
        monkeypatch.setenv("CI", ci)
    pytester.makepyfile(MISSING)
    result = pytester.runpytest("-p", "tests.programs", "--strict-markers", "-rsfE")
    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines(["*not installed: no-such-program*"])


def test_only_one_place_decides_about_missing_programs() -> None:
    """A test is left out here and there only for what its system cannot do."""
    leaving_out = re.compile(r"pytest\.(?:skip|importorskip|mark\.skip|mark\.skipif)\(")
    found = {
        str(path.relative_to(ROOT / "tests"))
        for path in (ROOT / "tests").rglob("*.py")
        if leaving_out.search(path.read_text("utf-8"))
    }
    assert found == {
        "crash/test_disk_faults.py",  # mounting a small file system
        "eventlog/read_only.py",  # mounting a directory read-only
        "programs.py",
        "runtime/process/test_escapes.py",  # what the sandbox cannot enforce
        "runtime/process/test_landlock.py",  # what only the kernel of Linux does
        "runtime/process/test_hostile.py",  # what only the kernel of Linux does
    }


@pytest.mark.parametrize("program", PROGRAMS)
def test_continuous_integration_installs_the_programs(program: str) -> None:
    """And says that it is continuous integration, so that none is missing unnoticed."""
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert "export CI=true" in script
    assert program == "bash" or f"command -v {program} " in script  # it runs in bash itself


def test_no_test_needs_another_program() -> None:
    """Whatever tests ask for is among those that continuous integration installs."""
    asked = re.compile(r'(?:mark\.needs|require)\(("[^)]*")\)')
    found = {
        program
        for path in (ROOT / "tests").rglob("*.py")
        if path.name != "test_programs.py"
        for arguments in asked.findall(path.read_text("utf-8"))
        for program in re.findall(r'"([\w-]+)"', arguments)
    }
    assert found == set(PROGRAMS) - {"node"}  # asked for by the name of a language
