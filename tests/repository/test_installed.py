"""Perdure in somebody's project, which has packages of the names that ours have in the repository.

Each test is about the wheel and about an editable install of a checkout.
"""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.repository.installing import run

THEIRS = ("runtime", "actors", "eventlog", "tools")
SHOP = """
import actors
import eventlog
import runtime
import tools
from runtime.orders import WHOSE

from perdure import Retry, RunContext, Secret, SyncRunContext, entry, plugin


def owners() -> list[str]:
    return [WHOSE, runtime.WHOSE, actors.WHOSE, eventlog.WHOSE, tools.WHOSE]


async def ask_them(how: str) -> list[str]:
    return [f"{how} {owner}" for owner in owners()]


@plugin("shop", version="1")
class Shop:
    @entry
    async def inline(self, ctx: RunContext, how: str, token: Secret | None = None) -> list[str]:
        ctx.run.progress(0.5, "half of it")
        said = await ctx.run.step("ask", ask_them, how, retry=Retry(tries=2))
        await ctx.run.export_json(said, "who it is", key="who")
        return said

    @entry(where="process")
    async def awaited(self, ctx: RunContext, how: str, token: Secret | None = None) -> list[str]:
        return await ctx.run.step("ask", ask_them, how)

    @entry
    def plain(self, ctx: SyncRunContext, how: str, token: Secret | None = None) -> list[str]:
        ctx.run.progress(0.5)
        said = ctx.run.step("ask", lambda: [f"{how} {owner}" for owner in owners()])
        ctx.run.export_json(said, key="who")
        return said
"""
MISTAKEN = """
from perdure import Promise, RunContext, SyncRunContext


async def inline(ctx: RunContext) -> None:
    ctx.run.progress("half")


def plain(ctx: SyncRunContext) -> None:
    ctx.run.progress(0.5, 1)
"""
MISTAKES = [("2", "attr-defined"), ("6", "arg-type"), ("10", "arg-type")]


@pytest.fixture(params=["installed", "editable"])
def python(request: pytest.FixtureRequest) -> Path:
    """The Python of an environment with Perdure in it."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Path)
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Somebody's project, with packages of their own."""
    for package in THEIRS:
        (tmp_path / package).mkdir()
        for module in ("__init__", "orders"):
            (tmp_path / package / f"{module}.py").write_text('WHOSE = "theirs"\n', "utf-8")
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    (tmp_path / "mistaken.py").write_text(MISTAKEN, "utf-8")
    (tmp_path / "perdure.toml").write_text('modules = ["shop"]\n', "utf-8")
    return tmp_path


@pytest.mark.parametrize("entry_id", ["inline", "awaited", "plain"])
def test_packages_of_a_project_stay_its_own(python: Path, project: Path, entry_id: str) -> None:
    """Wherever an entry runs, it imports them, and Perdure imports its own."""
    command = python.with_name("perdure")
    run(command, "run", f"shop.{entry_id}", "--arg", f"how={entry_id}", cwd=project)
    (found,) = json.loads(run(command, "runs", "--json", cwd=project))["runs"]
    *_, result = run(command, "export", found["run_id"], "--json", cwd=project).splitlines()
    assert json.loads(result)["json"] == [f"{entry_id} theirs"] * 5


def test_types_are_checked_in_a_project(python: Path, project: Path) -> None:
    """A plugin passes strict checks, and its mistakes do not."""
    command = (sys.executable, "-m", "mypy", "--strict", "--no-error-summary")
    options = ("--cache-dir", os.devnull, "--python-executable", python)
    said = run(*command, *options, "shop.py", "mistaken.py", cwd=project, code=1)
    found = re.findall(r"^(\w+)\.py:(\d+): error: .*\[([a-z-]+)\]$", said, re.MULTILINE)
    assert found == [("mistaken", *mistake) for mistake in MISTAKES], said
