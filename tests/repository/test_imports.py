"""Who imports what, where the contracts of import-linter need company."""

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

from tests.repository.tree import FOLDERS, ROOT, name, python_files
from tests.second_names import SECOND_NAMES

CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

# Imports every module of perdure, runs an entry inline and says what else was loaded.
EVERYTHING = """
import importlib, json, pkgutil, sys
import perdure
for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
    importlib.import_module(module.name)
from perdure.demo import Demo
from perdure.testing import run_entry
ran = run_entry(Demo, "steps", {"n": 2}, crash_after_every_step=True)
assert ran.record["status"] == "succeeded", ran
print(json.dumps(sorted(sys.modules)))
"""


def test_the_second_names_are_those_of_the_linked_folders() -> None:
    """Each folder that a link in perdure/ leads to, and no other."""
    links = {path.name for path in (ROOT / "perdure").iterdir() if path.is_symlink()}
    assert links == SECOND_NAMES == set(FOLDERS) - {"perdure"}


def in_perdure_itself() -> set[str]:
    """The modules that lie in perdure/ and not in a package that a link leads to."""
    files = (ROOT / "perdure").glob("*.py")
    return {"perdure" if f.stem == "__init__" else f"perdure.{f.stem}" for f in files}


def test_no_package_below_imports_what_lies_in_perdure_itself() -> None:
    """Neither ``import perdure`` nor a name from it: those lead back up.

    Two modules are known by name only and imported by nobody: perdure.demo, which is loaded as any
    plugin is, and perdure.child, which is started as a program.
    """
    graph = grimp.build_graph("perdure", cache_dir=None)
    itself = in_perdure_itself()
    importers = {
        importer
        for module in itself
        for importer in graph.find_modules_that_directly_import(module)
    }
    assert "perdure.demo" in importers  # written as any plugin is; so the graph does show them
    assert importers - itself == set()


def test_the_contract_names_all_that_lies_in_perdure_itself() -> None:
    """`make check` says the same sooner; a module that is new must be added to the contract."""
    contracts = CONFIG["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if "perdure" in each.get("forbidden_modules", ()))
    assert set(contract["forbidden_modules"]) == in_perdure_itself()


@pytest.mark.parametrize("package", sorted(SECOND_NAMES))
@pytest.mark.parametrize("importing", ["import {}", "import {}.x", "from {}.x import y"])
def test_ruff_refuses_the_second_name_of_a_module(package: str, importing: str) -> None:
    """Whoever writes ``import runtime`` is told at once what to write."""
    snippet = f"{importing.format(package)}\n"
    command = ("ruff", "check", "--select", "TID251", "--output-format", "concise", "-")
    place = ("--stdin-filename", "runtime/blobs/snippet.py")
    done = subprocess.run(
        (sys.executable, "-m", *command, *place),
        cwd=ROOT,
        input=snippet,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert f"import perdure.{package}: by two names a module is loaded twice" in done.stdout


def test_no_file_imports_a_module_by_its_second_name() -> None:
    """Not even those in which ruff lets pass what it bans elsewhere, as tests and tools."""
    found = [(name(path), each) for path in python_files() for each in imported(path)]
    assert ("perdure/demo.py", "perdure") in found
    assert [each for each in found if each[1].partition(".")[0] in SECOND_NAMES] == []


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports by absolute name, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield str(node.module)


def test_nothing_is_loaded_by_its_second_name() -> None:
    """From a checkout, where it could be: classes that are there twice are not equal."""
    command = (sys.executable, "-W", "error", "-c", EVERYTHING)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout))
    assert {f"perdure.{package}" for package in SECOND_NAMES} <= loaded
    assert loaded & SECOND_NAMES == set()


@pytest.mark.parametrize(
    ("place", "processes"), [("", "1"), ("", "0"), ("def test_importing():\n    ", "0")]
)
def test_a_session_that_loads_a_second_name_fails(
    pytester: pytest.Pytester, place: str, processes: str
) -> None:
    """Be it while tests are collected or while one runs, here or in another process."""
    pytester.makepyfile(eventlog="", test_sample=f"{place}import eventlog\ndef test_it(): pass")
    result = pytester.runpytest("-p", "tests.second_names", "-n", processes)
    assert result.ret is pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["E*imported without perdure. before it: eventlog*"])


def test_a_session_that_loads_none_passes(pytester: pytest.Pytester) -> None:
    """Modules of Perdure by their own names are as they should be."""
    pytester.makepyfile("import perdure.eventlog\ndef test_it(): pass")
    assert pytester.runpytest("-p", "tests.second_names").ret is pytest.ExitCode.OK
