"""The page about the command line against the commands."""

import re
from typing import get_type_hints

import click
import pytest

from perdure.actors.run.history_rows import HistoryRow
from perdure.actors.run.views import ErrorView, ExportItem, LogLineView, RunDelta, RunRecord
from perdure.runtime.cli.doctor import Check
from perdure.runtime.kernel.terminal.invocation import MEANINGS, ExitCode
from perdure.runtime.runs.answers import PluginView, RunPage
from tests.repository.tree import ROOT
from tests.runtime.cli.test_cli import commands

PAGE = (ROOT / "docs" / "cli.md").read_text("utf-8")
COMMON = PAGE.split("## Options of every command")[1].split("\n## ")[0]
LEAVES = {words: command for words, command in commands() if not isinstance(command, click.Group)}


def section(words: tuple[str, ...]) -> str:
    """What the page says of a command."""
    heading = rf"^### `perdure {' '.join(words)}\b[^`]*`\n"
    found = re.search(heading + r"(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"perdure {' '.join(words)} is not on the page"
    return found[0]


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_is_on_the_page_with_its_options(words: tuple[str, ...]) -> None:
    """Its own options in its section, those of all commands in theirs; and no others."""
    options: set[str] = set()
    arguments: list[str] = []
    for parameter in LEAVES[words].params:
        if isinstance(parameter, click.Option):
            options.update(name for name in parameter.opts if name.startswith("--"))
        else:
            arguments.append(parameter.make_metavar(click.Context(LEAVES[words])))
    said = section(words)
    shared = set(re.findall(r"`(--[a-z-]+)", COMMON))
    described = set(re.findall(r"`(--[a-z-]+)", said))
    assert options - shared - described == set()
    assert described - shared - options == set()
    heading = said.partition("\n")[0]
    assert all(argument in heading for argument in arguments), heading


def test_no_command_on_the_page_is_gone() -> None:
    """Every heading is a command."""
    headings = re.findall(r"^### `perdure ([a-z ]+?)(?: \[?[A-Z.]+\]?)*`$", PAGE, re.MULTILINE)
    assert {tuple(heading.split()) for heading in headings} == set(LEAVES)


def test_every_exit_code_is_on_the_page() -> None:
    """With what it means, in the same words as in the code."""
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", PAGE, re.MULTILINE))
    assert rows == {str(int(code)): MEANINGS[code] for code in ExitCode}


@pytest.mark.parametrize(
    "shape",
    [
        RunRecord,
        RunDelta,
        HistoryRow,
        ExportItem,
        ErrorView,
        LogLineView,
        RunPage,
        PluginView,
        Check,
    ],
)
def test_every_key_of_json_output_is_on_the_page(shape: type) -> None:
    """Programs can rely on what is written there."""
    assert [key for key in get_type_hints(shape) if f"`{key}`" not in PAGE] == []
