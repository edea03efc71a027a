import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.repository.tree import ROOT, files, name

README = ROOT / "README.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
GUIDES = [README, ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md", GLOSSARY]
DOCS = [path for path in files() if path.suffix == ".md"]

LINK = re.compile(r"\[[^\]]*\]\((?!\w+:|#)([^)#\s]+)(?:#[^)]*)?\)")
CODE_PATH = re.compile(r"`(\.?[\w-]+(?:/[\w.-]*)+|[\w-]+\.(?:md|py|toml|in|lock))`")
MAKE = re.compile(r"(?:`|^\s*(?:\$ )?)make ([a-z]+)", re.MULTILINE)
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

# Traces of one machine or one network that mean nothing to anybody else.
PRIVATE = re.compile(
    r"(?<![\w.~])/(?:work|root|home|opt|Users)/"
    r"|(?<!\S)--(?:(?:extra-)?index-url|find-links|trusted-host)\b"
    r"|https?://[\w.-]*(?:pypi|artifactory|devpi|nexus)[\w.-]*"
)


def missing(document: Path, pattern: re.Pattern[str], base: Path) -> list[str]:
    """The paths that a document mentions and that do not exist."""
    mentioned = pattern.findall(document.read_text("utf-8"))
    return [path for path in mentioned if not (base / path).exists()]


@pytest.mark.parametrize("document", DOCS, ids=name)
def test_links_lead_somewhere(document: Path) -> None:
    """Every relative link leads to a file of the repository."""
    assert missing(document, LINK, document.parent) == []


@pytest.mark.parametrize("document", GUIDES, ids=name)
def test_mentioned_paths_exist(document: Path) -> None:
    """Every path written as code in a guide exists, seen from the top of the repository."""
    assert missing(document, CODE_PATH, ROOT) == []


@pytest.mark.parametrize("document", GUIDES, ids=name)
def test_mentioned_make_targets_exist(document: Path) -> None:
    """Every make command in a guide is one that the Makefile knows."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(MAKE.findall(document.read_text("utf-8"))) <= targets


@pytest.mark.parametrize("document", DOCS, ids=name)
def test_python_blocks_compile(document: Path) -> None:
    """Every Python block in the documentation is valid Python; await may stand at the top."""
    for block in PYTHON_BLOCK.findall(document.read_text("utf-8")):
        compile(block, document.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_changelog_knows_this_version() -> None:
    """The changelog has a section for what is unreleased or for the version at hand."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    sections = re.findall(
        r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert {"Unreleased", version} & set(sections)


def test_the_map_of_the_runtime_names_every_module() -> None:
    """Those of each package, in its row; the command line's are too many, and named by command."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(runtime/\w+)/` \|(.*)$", text, re.MULTILINE))
    assert set(rows) == {name(path.parent) for path in ROOT.glob("runtime/*/__init__.py")}
    del rows["runtime/cli"]
    for package, row in rows.items():
        modules = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
        assert set(re.findall(r"`(\w+)`", row)) == modules, package


def test_the_glossary_has_one_row_for_each_word() -> None:
    """A word is defined once, in a line, and a module that defines it is named."""
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in re.findall(r"^\| (?!word \|).*$", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    ]
    words = [word for word, *_ in rows]
    assert len(words) > 50
    assert sorted(words) == sorted(set(words))
    assert [row for row in rows if len(row) != 4 or not row[1]] == []
    assert [row for row in rows if not CODE_PATH.fullmatch(row[3])] == []


def test_no_word_of_the_glossary_is_also_one_to_avoid() -> None:
    """What is written instead of a word must not itself mean something else."""
    rows = re.findall(r"^\| (.*?) \| .*? \| (.*?) ?\| `", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    words = {word for word, _ in rows}
    avoided = {word: set(others.split(", ")) & words for word, others in rows}
    assert {word: both for word, both in avoided.items() if both} == {"encrypted secret": {"seal"}}


@pytest.mark.parametrize("document", [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"], ids=name)
def test_guides_lead_to_the_glossary(document: Path) -> None:
    """People who come across a word find it."""
    assert "(docs/glossary.md)" in document.read_text("utf-8")


def test_every_decision_is_in_the_index() -> None:
    """Each page in docs/adr is listed in its index."""
    directory = ROOT / "docs" / "adr"
    index = (directory / "README.md").read_text("utf-8")
    pages = [page.name for page in directory.glob("[0-9]*.md")]
    assert [page for page in pages if f"({page})" not in index] == []


def test_no_file_speaks_of_one_machine() -> None:
    """No file holds an absolute path of somebody's machine or the address of a package index."""
    found = []
    for path in files():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # a golden record or a picture
        found += [f"{name(path)}: {match.group()}" for match in PRIVATE.finditer(text)]
    assert found == []
