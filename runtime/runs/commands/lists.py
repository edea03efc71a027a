"""Lists: runs, plugins."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from perdure.runtime.client.choice import Choice
from perdure.runtime.kernel.terminal.command import Command, common
from perdure.runtime.kernel.terminal.invocation import ExitCode, Invocation, pass_invocation
from perdure.runtime.kernel.terminal.text import (
    Cell,
    Column,
    duration,
    moment,
    styled,
    table,
    wrapped,
)
from perdure.runtime.runs.commands.found_run import run_id_of
from perdure.runtime.runs.commands.parameters import STATUSES, InstantParam, RunName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.actors.run.views import RunRecord
    from perdure.runtime.client.client import Caller
    from perdure.runtime.runs.answers import EntryView, PluginPage, PluginView, RunPage
    from perdure.runtime.runs.commands.tree import Family

MOST: Final = 500  # runs in a page
_COLUMNS: Final = (
    Column("RUN"),
    Column("STATUS"),
    Column("ENTRY", gives=True),
    Column("TRY", right=True),
    Column("CREATED"),
    Column("TOOK", right=True),
    Column("NOTE", gives=True),
)


@click.command(
    cls=Command,
    short_help="List runs.",
    examples=[
        "perdure runs",
        "perdure runs --status failed --status timeout --limit 100",
        "perdure runs --plugin demo --group root",
        "perdure runs --tree",
        "perdure runs --started-by RUN",
        "perdure runs --at 2026-08-01T12:00:00Z --json",
    ],
)
@click.option("--group", type=click.Choice(["root"]), help="Group the attempts of each run.")
@click.option("--tree", is_flag=True, help="Show each run with the runs that it has started.")
@click.option(
    "--status", multiple=True, type=click.Choice(STATUSES), help="Only this status. Repeatable."
)
@click.option("--plugin", metavar="PLUGIN", help="Only runs of a plugin.")
@click.option("--entry", metavar="ENTRY", help="Only runs of an entry.")
@click.option("--task", metavar="TASK", help="Only runs of a task.")
@click.option("--started-by", type=RunName(), help="Only runs that a run has started.")
@click.option(
    "--limit",
    type=click.IntRange(1, MOST),
    default=20,
    show_default=True,
    help="Maximum number of runs.",
)
@click.option("--after", metavar="CURSOR", help="The next page: next_after of the last one.")
@click.option(
    "--at", type=InstantParam(), help="The state at a cursor, an ISO 8601 time or epoch seconds."
)
@common
@pass_invocation
def runs(  # noqa: PLR0913 - one for each option
    invocation: Invocation,
    *,
    group: str | None,
    tree: bool,
    status: tuple[str, ...],
    plugin: str | None,
    entry: str | None,
    task: str | None,
    started_by: str | None,
    limit: int,
    after: str | None,
    at: str | None,
) -> None:
    """List runs, newest first, as they are now or were at an earlier time."""
    if group and tree:
        raise click.UsageError("Pass --group or --tree, not both.")
    asked = {
        "top_level": tree and started_by is None,
        "started_by": started_by,
        "status": list(status) or None,
        "plugin_id": plugin,
        "entry_id": entry,
        "task_id": task,
        "limit": limit,
        "after": after,
        "at": at,
    }
    choice = Choice(invocation)
    page, tops, at_work = choice.asked(partial(_page, invocation, asked, tree))
    is_filtered = bool(status or plugin or entry or task or started_by or after or at)
    if invocation.json:
        invocation.give(_shaped(page, tops, group=group))
    elif not page["runs"]:
        _say_that_there_are_none(invocation, choice, filtered=is_filtered)
    else:
        _show(invocation, page, tops, grouped=group is not None, at_work=at_work)
    for run_id in page.get("unreadable", ()):
        invocation.warn(f"run {run_id} cannot be read; `perdure log verify` tells more")


def _shaped(
    page: RunPage, tops: list[Family] | None, *, group: str | None
) -> dict[str, Any] | RunPage:
    """Return a page as JSON has it: as it is, by root, or by family."""
    if group:
        groups = [{"root_run_id": root, "runs": tries} for root, tries in _grouped(page).items()]
        parts: dict[str, Any] = {"groups": groups}
    elif tops is not None:
        parts = {"families": tops}
    else:
        return page
    return {**{name: part for name, part in page.items() if name != "runs"}, **parts}


async def _page(
    invocation: Invocation,
    asked: dict[str, Any],
    tree: bool,  # noqa: FBT001 - partial passes arguments by place
    caller: Caller,
) -> tuple[RunPage, list[Family] | None, bool]:
    """Read a page, the families of its runs if wanted, and whether a process is at work."""
    if asked["started_by"] is not None:
        asked["started_by"] = await run_id_of(invocation, caller, asked["started_by"])
    page: RunPage = await caller.call("runs.list", asked)
    tops = None
    if tree:
        from perdure.runtime.runs.commands.tree import families

        tops = await families(page, partial(caller.call, "runs.list"))
    return page, tops, caller.at_work


def _grouped(page: RunPage) -> dict[str, list[RunRecord]]:
    """Group runs by root: attempts in order, newest roots first."""
    groups: dict[str, list[RunRecord]] = {}
    for run in page["runs"]:
        groups.setdefault(run["root_run_id"], []).append(run)
    return {root: sorted(tries, key=lambda run: run["attempt"]) for root, tries in groups.items()}


def _say_that_there_are_none(invocation: Invocation, choice: Choice, *, filtered: bool) -> None:
    if filtered:
        invocation.say("No runs match. `perdure runs` lists all runs.")
        return
    invocation.say(f"No runs yet in {choice.place}.")
    invocation.say("Start one:         perdure run demo.count --arg to=20")
    invocation.say("List entries:      perdure plugins")


def _show(
    invocation: Invocation,
    page: RunPage,
    tops: list[Family] | None,
    *,
    grouped: bool,
    at_work: bool,
) -> None:
    from perdure.actors.run.status import OPEN
    from perdure.eventlog import clock
    from perdure.eventlog.units import NANOSECONDS

    now = clock.wall() / NANOSECONDS
    if grouped:
        lines = _group_lines(_grouped(page), now, invocation.width)
    elif tops is not None:
        lines = _tree_lines(tops, now, invocation.width)
    else:
        lines = table(_COLUMNS, [_row(run, now) for run in page["runs"]], invocation.width)
    invocation.lines(lines)
    if page["next_after"] is not None:
        invocation.say()
        invocation.say(f"There are more runs: raise --limit, or pass --after {page['next_after']}")
    if any(run["status"] in OPEN for run in page["runs"]) and not at_work:
        invocation.say()
        invocation.say("No process is at work on this log: runs that have not ended wait for one.")
        invocation.say("`perdure retry RUN` resumes a run, `perdure cancel RUN` ends it.")


def _group_lines(groups: dict[str, list[RunRecord]], now: float, width: int | None) -> list[str]:
    """Return one aligned table with a heading line above the attempts of each root."""
    columns = (
        Column("ATTEMPT", right=True),
        *(c for c in _COLUMNS if c.title not in {"TRY", "ENTRY"}),
    )
    rows = [
        (str(run["attempt"]), *_row(run, now)[:2], *_row(run, now)[4:])
        for tries in groups.values()
        for run in tries
    ]
    head, *lines = table(columns, rows, width)
    shown = [head]
    for root, tries in groups.items():
        first = tries[0]
        name = f"{first['plugin_id']}.{first['entry_id']}"
        shown.append(styled(f"{name}  {root}", "head"))
        shown.extend(lines[: len(tries)])
        lines = lines[len(tries) :]
    return shown


def _tree_lines(tops: list[Family], now: float, width: int | None) -> list[str]:
    from perdure.runtime.runs.commands.tree import tree_lines

    columns = [c for c in _COLUMNS if c.title not in {"TRY", "CREATED"}]
    return tree_lines(columns, tops, lambda run: (*_row(run, now)[:3], *_row(run, now)[5:]), width)


def _row(run: RunRecord, now: float) -> tuple[Cell | str, ...]:
    started = run["started_at"]
    ended = run["finished_at"] if run["finished_at"] is not None else now
    return (
        run["run_id"],
        Cell(run["status"], run["status"]),
        f"{run['plugin_id']}.{run['entry_id']}",
        str(run["attempt"]) if run["attempt"] > 1 else "",
        moment(run["created_at"], now),
        "" if started is None else duration(max(0.0, ended - started)),
        note(run),
    )


def note(run: RunRecord) -> str:
    """Return the error of a run, or its progress, stage and message."""
    from perdure.actors.run.status import OPEN

    if run["error"] is not None:
        return f"{run['error']['code']}: {run['error']['message']}"
    if run["status"] not in OPEN:
        return ""
    words = [] if run["progress"] is None else [f"{run['progress']:.0%}"]
    return " ".join([*words, *filter(None, (run["stage"], run["message"]))])


@click.command(
    cls=Command,
    short_help="List plugins and their entries.",
    examples=["perdure plugins", "perdure plugins --json"],
)
@common
@pass_invocation
def plugins(invocation: Invocation) -> None:
    """List plugins with their entries and arguments, and plugins that failed to load."""
    from perdure.runtime.plugins.loading import Problem

    page: PluginPage = Choice(invocation).asked(lambda caller: caller.call("plugins.list", {}))
    if invocation.json:
        invocation.give({"plugins": page["plugins"], "problems": page["problems"]})
    else:
        for view in page["plugins"]:
            invocation.lines(_plugin_lines(view, invocation.width))
        if not page["plugins"]:
            invocation.say("No plugins are loaded.")
            invocation.say("Name your modules in perdure.toml (see docs/plugins.md):")
            invocation.say('  modules = ["my_plugins"]')
        for problem in page["problems"]:
            invocation.say(f"{styled('Problem:', 'error')} {Problem(**problem)}", err=True)
    if page["problems"]:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _plugin_lines(view: PluginView, width: int | None) -> list[str]:
    about = (view["description"] or "").partition("\n")[0]
    lines = [f"{styled(view['plugin_id'], 'head')} {view['version']}  {about}".rstrip()]
    for entry in view["entries"]:
        name = f"{view['plugin_id']}.{entry['entry_id']}"
        described = (entry["description"] or "").partition("\n")[0]
        lines.append("  " + " ".join([name, *arguments(entry)]))
        lines.extend(
            f"      {styled(line, 'dim')}" for line in wrapped(described, width, 6) if line
        )
    return [*lines, ""]


def arguments(entry: EntryView) -> Iterable[str]:
    """Return the arguments of an entry, as they are typed."""
    required = set(entry["args"].get("required", ()))
    for name, schema in entry["args"].get("properties", {}).items():
        kind = schema.get("type") or "any"
        if name in required:
            yield f"{name}=<{kind}>"
        else:
            yield f"[{name}={schema.get('default')!s}]"
