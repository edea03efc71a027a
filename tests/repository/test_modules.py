import re

from perdure.runtime.secrets.run_logging import OURS
from tests.repository.tree import FOLDERS, ROOT, name, python_files

MOST_LINES = 400  # the aim is about 300
SAYS_NOTHING = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}


def test_no_module_is_too_long_to_read() -> None:
    """A module defines one noun; one that has grown past the limit is two."""
    lengths = {name(path): len(path.read_text("utf-8").splitlines()) for path in python_files()}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_every_module_is_named_after_what_it_defines() -> None:
    """No module or directory has a name that could hold anything."""
    vague = [
        name(path)
        for path in python_files()
        if SAYS_NOTHING & {*path.relative_to(ROOT).parent.parts, path.stem}
    ]
    assert vague == []


def test_every_package_says_what_it_may_not_know() -> None:
    """The docstring of a package opens with one line about what it is and must not know."""
    for package in FOLDERS:
        first = (ROOT / package / "__init__.py").read_text("utf-8").partition("\n")[0]
        assert first.startswith('"""'), package
        assert "know" in first.lower(), package


def test_every_logger_is_named_as_ours() -> None:
    """By its name a record is told from what an entry logs; only the root has none."""
    named = re.compile(r"getLogger\((.*?)\)")
    found = [
        logger
        for path in python_files()
        if path.relative_to(ROOT).parts[0] in FOLDERS
        for logger in named.findall(path.read_text("utf-8"))
    ]
    assert found
    assert [each for each in found if each and not each.startswith(f'"{OURS}')] == []
