"""The commands that write the log: run, retry, cancel."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from perdure.runtime.client.choice import Choice
from perdure.runtime.kernel.terminal.command import Command, common
from perdure.runtime.kernel.terminal.interrupts import Interrupts
from perdure.runtime.kernel.terminal.invocation import (
    CommandRefusal,
    ExitCode,
    Invocation,
    pass_invocation,
)
from perdure.runtime.runs.commands.bulk import change_many, check_one_or_many, conditions, stated
from perdure.runtime.runs.commands.found_run import found_run
from perdure.runtime.runs.commands.lists import arguments
from perdure.runtime.runs.commands.parameters import EntryName, RunName, parsed_args, parsed_secrets
from perdure.runtime.runs.commands.plugins_loaded import execute_here, load_here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.runtime.client.client import Caller, Client
    from perdure.runtime.plugins.loading import LoadedPlugins
    from perdure.runtime.runs.answers import EntryView, PluginPage, RunAnswer


@click.command(
    cls=Command,
    short_help="Execute an entry and show its progress.",
    examples=[
        "perdure run demo.count --arg to=100 --arg delay=0.05",
        "perdure run demo.fail --arg code=MINE; echo $?",
        "perdure run demo.steps --key nightly-2026-08-01",
        "perdure run demo.count --json | jq -c .change",
    ],
)
@click.argument("entry", type=EntryName(), metavar="PLUGIN.ENTRY")
@click.option(
    "--arg",
    "args",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument, as JSON or text. Repeatable.",
)
@click.option("--task", metavar="TASK", help="The task that the run belongs to.")
@click.option("--key", metavar="KEY", help="Idempotency key: the same key returns the same run.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), help="Time limit in seconds."
)
@common
@pass_invocation
def run(
    invocation: Invocation,
    entry: tuple[str, str],
    args: tuple[str, ...],
    task: str | None,
    key: str | None,
    timeout: float | None,
) -> None:
    """Execute an entry in this process and show its progress; the exit code tells the outcome.

    The process is the log's writer until the run ends; other runs in the log are not touched. The
    first Ctrl-C asks the run to end, the second forces it, the third kills the process; `perdure
    retry` resumes an interrupted run. If a server holds the log, the server executes the run, and
    Ctrl-C only stops watching.
    """
    interrupts = click.get_current_context().with_resource(Interrupts())
    from perdure.runtime.runs.commands.stay import stay

    choice = Choice(invocation)
    loaded = load_here(invocation, choice)
    view = _published(choice, loaded, *entry)
    request = {
        "plugin_id": entry[0],
        "entry_id": entry[1],
        "args": parsed_args(args, {} if view is None else view["args"]),
        "task_id": task,
        "idempotency_key": key,
        "timeout": timeout,
    }
    if loaded is not None:
        with _telling_what_it_takes(entry, view):
            _check_here(loaded, request)

    if not choice.is_here:
        request = _repeatable(request)

    async def create(client: Client) -> RunAnswer:
        with _telling_what_it_takes(entry, view):
            answer: RunAnswer = await client.call("runs.create", request)
            return answer

    raise click.exceptions.Exit(stay(invocation, choice, create, interrupts))


def _published(
    choice: Choice, loaded: LoadedPlugins | None, plugin_id: str, entry_id: str
) -> EntryView | None:
    """Give what is published of an entry; None if a server does not know it, and will say so."""
    if loaded is not None:
        from perdure.runtime.plugins.entries import Entries
        from perdure.runtime.runs.plugin_list import entry_view

        return entry_view(Entries(loaded.plugins).find(plugin_id, entry_id))
    page: PluginPage = choice.asked(lambda caller: caller.call("plugins.list", {}))
    for plugin in page["plugins"]:
        for entry in plugin["entries"]:
            if (plugin["plugin_id"], entry["entry_id"]) == (plugin_id, entry_id):
                return entry
    return None


def _check_here(loaded: LoadedPlugins, request: dict[str, Any]) -> None:
    """Check the arguments before the log is opened: a mistake leaves nothing behind."""
    from perdure.runtime.plugins.entries import Entries, check_args
    from perdure.runtime.secrets.redaction import Redactor
    from perdure.runtime.secrets.secret import reference_in

    entry = Entries(loaded.plugins).find(request["plugin_id"], request["entry_id"])
    args = request["args"]
    secrets = [args[name] for name in entry.secrets & args.keys()]
    if any(reference_in(secret) is not None for secret in secrets):
        return  # the node resolves the references, then checks the arguments
    redactor = Redactor()
    redactor.register(*secrets)
    check_args(entry, args, redactor)


@contextmanager
def _telling_what_it_takes(entry: tuple[str, str], view: EntryView | None) -> Iterator[None]:
    """Let a refusal of arguments list what the entry takes."""
    from perdure.runtime.kernel.errors import OperationError

    try:
        yield
    except OperationError as error:
        found = (error.details or {}).get("errors") or [{"path": ""}]
        if view is None or not found[0]["path"].startswith("args"):
            raise
        takes = " ".join(arguments(view)) or "no arguments"
        raise CommandRefusal(
            error.message,
            code=error.code,
            exit_code=ExitCode.USAGE,
            remedy=f"{'.'.join(entry)} takes {takes}",
            details=error.details,
        ) from error


def _repeatable(request: dict[str, Any]) -> dict[str, Any]:
    """Give a request to a server a key if it has none: a lost answer can be asked for again."""
    from perdure.eventlog.env import RealEnv

    key = request.get("idempotency_key")
    return {**request, "idempotency_key": str(RealEnv().new_id()) if key is None else key}


@click.command(
    cls=Command,
    short_help="Retry an ended run, or resume an open one.",
    examples=[
        "perdure retry RUN",
        "perdure retry 0199a7c2-7d3e --json",
        "perdure retry --status failed --plugin demo",
    ],
)
@click.argument("run", type=RunName(), required=False)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME=VALUE",
    help="A secret argument, or a reference to a secret. Repeatable.",
)
@conditions
@common
@pass_invocation
def retry(
    invocation: Invocation,
    /,
    run: str | None,
    secrets: tuple[str, ...],
    *,
    yes: bool,
    **options: Any,
) -> None:
    """Retry a run that has ended, as a new attempt; resume a run whose process is gone.

    A resumed run continues after its last recorded step. Ctrl-C and exit codes are those of
    `perdure run`. Filters instead of a RUN select many runs; a server retries them.
    """
    where = stated(**options)
    check_one_or_many(run, where)
    choice = Choice(invocation)
    if run is None:
        change_many(invocation, choice, "retry", where, yes=yes)
        return
    interrupts = click.get_current_context().with_resource(Interrupts())
    from perdure.runtime.plugins.entries import Entries
    from perdure.runtime.runs.commands.stay import stay

    passed = parsed_secrets(secrets)
    record = choice.asked(lambda caller: found_run(invocation, caller, run))["run"]
    has_ended = record["finished_at"] is not None
    loaded = load_here(invocation, choice, *([] if has_ended else [record["run_id"]]))
    if loaded is not None:
        Entries(loaded.plugins).find(record["plugin_id"], record["entry_id"])

    async def again(client: Client) -> RunAnswer:
        asked = {"run_id": record["run_id"]}
        if has_ended:
            request = asked | {"secrets": passed}
            retried: RunAnswer = await client.call(
                "runs.retry", request if choice.is_here else _repeatable(request)
            )
            return retried
        resumed: RunAnswer = await client.call("runs.get", asked)
        return resumed

    raise click.exceptions.Exit(stay(invocation, choice, again, interrupts))


@click.command(
    cls=Command,
    short_help="Ask a run to end.",
    examples=[
        "perdure cancel RUN",
        "perdure cancel RUN --reason 'not needed'",
        "perdure cancel --status queued --plugin demo",
    ],
)
@click.argument("run", type=RunName(), required=False)
@click.option("--reason", metavar="TEXT", help="The reason, which is recorded with the run.")
@conditions
@common
@pass_invocation
def cancel(
    invocation: Invocation, /, run: str | None, reason: str | None, *, yes: bool, **options: Any
) -> None:
    """Ask a run to end that a server executes, or that no process executes.

    If `perdure run` executes the run, press Ctrl-C there. Filters instead of a RUN select many
    runs; a server cancels them.
    """
    import trio

    where = stated(**options)
    check_one_or_many(run, where)
    choice = Choice(invocation)
    if run is None:
        change_many(invocation, choice, "cancel", {**where, "reason": reason}, yes=yes)
        return

    async def find(caller: Caller) -> tuple[Any, bool]:
        return (await found_run(invocation, caller, run))["run"], caller.at_work

    record, at_work = choice.asked(find)
    run_id = record["run_id"]
    if record["finished_at"] is not None:
        answer: Any = {"run": record}
    else:
        answer = trio.run(partial(_cancel, choice, run_id, reason, to_the_end=not at_work))
    if invocation.json:
        invocation.give(answer)
        return
    status = answer["run"]["status"]
    late = " already" if record["finished_at"] is not None else ""
    invocation.say(f"{run_id} is {status}{late}.")


async def _cancel(
    choice: Choice, run_id: str, reason: str | None, *, to_the_end: bool
) -> RunAnswer:
    """Ask a run to end; one that no process was at work on ends before this process does."""
    from perdure.runtime.plugins.loading import LoadedPlugins

    execute_here(choice, LoadedPlugins())
    async with choice.client(writing=True) as client:
        asked = {"run_id": run_id}
        answer: RunAnswer = await client.call("runs.cancel", asked | {"reason": reason})
        if to_the_end:
            async with client.follow("run", after=answer["cursor"], run_id=run_id) as follow:
                async for _ in follow:
                    pass
            answer = await client.call("runs.get", asked)
    return answer
