"""`perdure runs --tree`, and what `perdure show` says of a family."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.actors.run.views import RunRecord
from perdure.runtime.kernel.completion import completed
from perdure.runtime.runs.answers import RunPage
from perdure.runtime.runs.commands import tree
from tests.runtime.cli.terminal import Shell


@pytest.fixture
def related(shell: Shell) -> Shell:
    """A log with a family, and a run without one."""
    shell.call("run", "test.greet")
    shell.call("run", "test.brood")
    return shell


def test_a_tree_shows_children_under_their_parents(related: Shell) -> None:
    """Newest first, each run once; the newest of many, and how many more there are."""
    lines = related.call("runs", "--tree", COLUMNS="80").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    tops = [line for line in lines[1:] if line[0] not in "├└"]
    assert ["brood" in line for line in tops] == [True, False]
    under = lines[lines.index(tops[0]) + 1 : lines.index(tops[1])]
    assert len(under) == tree.WIDTH + 1
    assert all(line.startswith("├ ") for line in under[:-1])
    assert under[-1] == "└ and 2 more"


def test_a_tree_is_a_tree_for_programs_too(related: Shell) -> None:
    """Each family with its run, its children, and how many are not among them."""
    page = related.json("runs", "--tree")
    parent, alone = page["families"]
    assert (parent["run"]["entry_id"], parent["more"]) == ("brood", 2)
    assert {child["run"]["started_by"] for child in parent["children"]} == {parent["run"]["run_id"]}
    assert (alone["children"], alone["more"]) == ([], 0)
    assert page["next_after"] is None
    assert related.json("runs", "--tree", "--at", page["cursor"]) == page
    early = related.json("runs", "--tree", "--at", "2020-01-01")
    assert early["families"] == []
    assert "No runs yet" in Shell(related.data / "elsewhere").call("runs", "--tree").output


def test_the_runs_that_a_run_has_started_are_listed(related: Shell) -> None:
    """By its id or a prefix; also as a tree, and none is told as such."""
    (family, alone) = related.json("runs", "--tree")["families"]
    parent = family["run"]["run_id"]
    children = related.json("runs", "--started-by", parent[:30])["runs"]
    assert len(children) == tree.WIDTH + 2
    assert {child["started_by"] for child in children} == {parent}
    tops = related.json("runs", "--tree", "--started-by", parent)["families"]
    assert [top["run"] for top in tops] == children
    none = related.call("runs", "--started-by", alone["run"]["run_id"])
    assert none.stdout.startswith("No runs match.")
    assert related.call("runs", "--started-by", "ffff").exit_code == 2


def test_a_tree_and_groups_exclude_each_other(related: Shell) -> None:
    """One of them is a mistake."""
    result = related.call("runs", "--tree", "--group", "root")
    assert result.exit_code == 2
    assert "not both" in result.stderr


def test_a_run_is_shown_with_its_family(related: Shell) -> None:
    """A parent with the number of its children, a child with its parent."""
    (family, _) = related.json("runs", "--tree")["families"]
    parent = family["run"]["run_id"]
    assert "children  12" in related.call("show", parent).output
    child = family["children"][0]["run"]["run_id"]
    assert f"started by  {parent}" in related.call("show", child).output
    assert "children" not in related.call("show", child).output


def test_a_tree_is_bounded() -> None:
    """However many generations there are, and however many runs in each."""

    def run(number: int, children: int = 100) -> Any:
        return {"run_id": f"{number}", "children": children}

    asked: list[dict[str, Any]] = []

    async def listed(of: dict[str, Any]) -> RunPage:
        asked.append(of)
        runs: list[RunRecord] = [run(number) for number in range(of["limit"])]
        return {"runs": runs, "next_after": None, "cursor": "c"}

    page: RunPage = {"runs": [run(0)], "next_after": None, "cursor": "c"}
    (top,) = completed(tree.families(page, listed))
    assert 1 + sum(of["limit"] for of in asked) == tree.MOST
    assert max(of["limit"] for of in asked) == tree.WIDTH
    assert all(of["at"] == "c" for of in asked)
    deep, depth = top, 0
    only = run(0, children=1)
    chain: RunPage = {"runs": [only], "next_after": None, "cursor": "c"}

    async def same(_: dict[str, Any]) -> RunPage:
        return chain

    (deep,) = completed(tree.families(chain, same))
    while deep["children"]:
        (deep,) = deep["children"]
        depth += 1
    assert (depth, deep["more"]) == (tree.DEPTH, 1)
