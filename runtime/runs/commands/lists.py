"""Lists: runs, plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

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
from perdure.runtime.runs.commands.parameters import STATUSES, InstantParam

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.actors.run.views import RunRecord
    from perdure.runtime.runs.answers import EntryView, PluginView, RunPage

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
        "perdure runs --at 2026-08-01T12:00:00Z --json",
    ],
)
@click.option("--group", type=click.Choice(["root"]), help="Group the attempts of each run.")
@click.option(
    "--status", multiple=True, type=click.Choice(STATUSES), help="Only this status. Repeatable."
)
@click.option("--plugin", metavar="PLUGIN", help="Only runs of a plugin.")
@click.option("--entry", metavar="ENTRY", help="Only runs of an entry.")
@click.option("--task", metavar="TASK", help="Only runs of a task.")
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
    status: tuple[str, ...],
    plugin: str | None,
    entry: str | None,
    task: str | None,
    limit: int,
    after: str | None,
    at: str | None,
) -> None:
    """List runs, newest first, as they are now or were at an earlier time."""
    asked = {
        "status": list(status) or None,
        "plugin_id": plugin,
        "entry_id": entry,
        "task_id": task,
        "limit": limit,
        "after": after,
        "at": at,
    }
    page = _page(invocation, asked)
    is_filtered = bool(status or plugin or entry or task or after or at)
    if invocation.json:
        invocation.give(_grouped_page(page) if group else page)
    elif not page["runs"]:
        _say_that_there_are_none(invocation, filtered=is_filtered)
    else:
        _show(invocation, page, grouped=group is not None)
    for run_id in page.get("unreadable", ()):
        invocation.warn(f"run {run_id} cannot be read; `perdure log verify` tells more")


def _page(invocation: Invocation, asked: dict[str, Any]) -> RunPage:
    from perdure.runtime.kernel.log_reader import open_reader

    if not invocation.data.log.exists() and asked["after"] is None:
        return {"runs": [], "next_after": None, "cursor": ""}
    with open_reader(invocation.data, invocation.features) as reader:
        page: RunPage = reader.call("runs.list", asked)
    return page


def _grouped(page: RunPage) -> dict[str, list[RunRecord]]:
    """Group runs by root: attempts in order, newest roots first."""
    groups: dict[str, list[RunRecord]] = {}
    for run in page["runs"]:
        groups.setdefault(run["root_run_id"], []).append(run)
    return {root: sorted(tries, key=lambda run: run["attempt"]) for root, tries in groups.items()}


def _grouped_page(page: RunPage) -> dict[str, Any]:
    groups = [{"root_run_id": root, "runs": tries} for root, tries in _grouped(page).items()]
    return {**{name: page[name] for name in page if name != "runs"}, "groups": groups}  # type: ignore[literal-required]


def _say_that_there_are_none(invocation: Invocation, *, filtered: bool) -> None:
    if filtered:
        invocation.say("No runs match. `perdure runs` lists all runs.")
        return
    invocation.say(f"No runs yet in {invocation.data.path}.")
    invocation.say("Start one:         perdure run demo.count --arg to=20")
    invocation.say("List entries:      perdure plugins")


def _show(invocation: Invocation, page: RunPage, *, grouped: bool) -> None:
    from perdure.actors.run.status import OPEN
    from perdure.eventlog import clock

    now = clock.wall() / 1_000_000_000
    if grouped:
        lines = _group_lines(_grouped(page), now, invocation.width)
    else:
        lines = table(_COLUMNS, [_row(run, now) for run in page["runs"]], invocation.width)
    invocation.lines(lines)
    if page["next_after"] is not None:
        invocation.say()
        invocation.say(f"There are more runs: raise --limit, or pass --after {page['next_after']}")
    if any(run["status"] in OPEN for run in page["runs"]) and not is_held(invocation):
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


def is_held(invocation: Invocation) -> bool:
    """Tell whether a process holds the log, as far as this machine knows."""
    from perdure.eventlog.sqlite.lock import holder_of

    return holder_of(invocation.data.log) is not None


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
    from perdure.runtime.plugins.loading import load_plugins
    from perdure.runtime.runs.plugin_list import plugin_view, problem_view
    from perdure.runtime.runs.settings import RunSettings

    loaded = load_plugins(invocation.settings.of(RunSettings))
    views = [plugin_view(loaded.plugins[plugin_id]) for plugin_id in sorted(loaded.plugins)]
    if invocation.json:
        invocation.give({"plugins": views, "problems": list(map(problem_view, loaded.problems))})
    else:
        for view in views:
            invocation.lines(_plugin_lines(view, invocation.width))
        if not views:
            invocation.say("No plugins are loaded.")
            invocation.say("Name your modules in perdure.toml (see docs/plugins.md):")
            invocation.say('  modules = ["my_plugins"]')
        for problem in loaded.problems:
            invocation.say(f"{styled('Problem:', 'error')} {problem}", err=True)
    if loaded.problems:
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
