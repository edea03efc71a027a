"""The package as people import it: light, and with every name where its list says."""

import ast
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import perdure
from tests.repository.test_public_names import LISTED
from tests.repository.tree import ROOT

PUBLIC = LISTED["perdure"]
LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)))"


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter holds after a statement."""
    command = (sys.executable, "-c", f"{statement}; {LOADED}")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def packages(modules: set[str]) -> set[str]:
    """The packages of Perdure among these modules, and trio."""
    named = {"perdure.runtime", "perdure.actors", "perdure.eventlog", "trio"}
    return modules & named


def test_importing_perdure_loads_nothing_behind_it() -> None:
    """Neither trio nor a package; a process of an entry starts quickly."""
    modules = loaded_by("import perdure")
    assert "perdure" in modules
    assert packages(modules) == set()


def test_the_log_is_loaded_without_the_runtime() -> None:
    """Who uses the event log by itself does not pay for the rest."""
    assert packages(loaded_by("import perdure.eventlog")) == {"perdure.eventlog"}
    everything = "from perdure.eventlog import open_log, back_up; import perdure.eventlog.testing"
    assert packages(loaded_by(everything)) == {"perdure.eventlog", "trio"}


def test_declaring_a_plugin_loads_no_event_loop() -> None:
    """What plugins import is light: a process of an entry imports them too."""
    assert "trio" not in loaded_by(f"from perdure import {', '.join(PUBLIC)}")


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_what_its_home_defines(name: str) -> None:
    """Each leads to the module that defines it, for people and for type checkers alike."""
    home = perdure._HOMES[name]
    assert getattr(perdure, name) is getattr(import_module(home), name)
    assert name in _defined_in(home)
    assert _seen_by_type_checkers()[name] == home


def test_the_homes_are_those_of_the_public_names() -> None:
    """A name is on the list, has a home, and is declared for type checkers, or none of these."""
    assert sorted(perdure._HOMES) == sorted(_seen_by_type_checkers()) == PUBLIC


def test_dir_lists_every_public_name_once() -> None:
    """Before a name was used and after."""
    _ = perdure.Retry
    listed = dir(perdure)
    assert {*PUBLIC, "__version__"} <= set(listed)
    assert len(listed) == len(set(listed))


def test_a_name_that_is_not_promised_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="module 'perdure' has no attribute 'promise'"):
        _ = perdure.promise  # type: ignore[attr-defined]


def _defined_in(module: str) -> set[str]:
    """The names that a module defines itself."""
    file = import_module(module).__file__
    assert file is not None
    defined = set()
    for node in ast.parse(Path(file).read_text("utf-8")).body:
        if isinstance(node, ast.Assign):
            defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            defined.add(node.name)
    return defined


def _seen_by_type_checkers() -> dict[str, str]:
    """The names that are imported for type checkers, each with the module it comes from."""
    tree = ast.parse((ROOT / "perdure" / "__init__.py").read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or "": str(node.module) for node in imports for alias in node.names}
