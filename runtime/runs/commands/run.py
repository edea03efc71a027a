"""The commands that write the log: run, retry, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import click

from perdure.runtime.kernel.terminal.command import Command, common
from perdure.runtime.kernel.terminal.interrupts import Interrupts
from perdure.runtime.kernel.terminal.invocation import (
    CommandRefusal,
    ExitCode,
    Invocation,
    pass_invocation,
)
from perdure.runtime.kernel.terminal.output import best_effort_output
from perdure.runtime.runs.commands.bulk import change_many, check_one_or_many, conditions, stated
from perdure.runtime.runs.commands.lists import arguments
from perdure.runtime.runs.commands.parameters import EntryName, RunName, parsed_args, parsed_secrets
from perdure.runtime.runs.commands.plugins_loaded import executing, loaded_for
from perdure.runtime.runs.commands.remote import remote_of
from perdure.runtime.runs.commands.show import reading, run_id_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from perdure.runtime.kernel.node import Node
    from perdure.runtime.plugins.loading import LoadedPlugins
    from perdure.runtime.plugins.plugin import Plugin
    from perdure.runtime.runs.answers import RunAnswer
    from perdure.runtime.runs.commands.remote import Remote

    Begin = Callable[[Node], Awaitable[RunAnswer]]


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
    remote = remote_of(invocation)
    loaded = loaded_for(invocation)
    plugin_id, entry_id = entry
    checked = _checked(loaded.plugins, plugin_id, entry_id, args)
    request = {
        "plugin_id": plugin_id,
        "entry_id": entry_id,
        "args": checked,
        "task_id": task,
        "idempotency_key": key,
        "timeout": timeout,
    }

    if remote is not None:
        _watch(invocation, remote, remote.create(request), interrupts)

    async def create(node: Node) -> RunAnswer:
        return await _create(node, request)

    _finish(invocation, loaded, create, interrupts)


def _checked(
    plugins: Mapping[str, Plugin], plugin_id: str, entry_id: str, args: tuple[str, ...]
) -> dict[str, Any]:
    """Return the arguments if they are valid; a refusal lists what the entry takes."""
    from perdure.runtime.kernel.errors import OperationError
    from perdure.runtime.plugins.entries import Entries, check_args
    from perdure.runtime.runs.plugin_list import entry_view
    from perdure.runtime.secrets.redaction import Redactor
    from perdure.runtime.secrets.secret import reference_in

    entry = Entries(plugins).find(plugin_id, entry_id)
    checked = parsed_args(args, entry)
    secrets = [checked[name] for name in entry.secrets & checked.keys()]
    if any(reference_in(secret) is not None for secret in secrets):
        return checked  # the node resolves the references, then checks the arguments
    redactor = Redactor()
    redactor.register(*secrets)
    try:
        check_args(entry, checked, redactor)
    except OperationError as error:
        takes = " ".join(arguments(entry_view(entry))) or "no arguments"
        raise CommandRefusal(
            error.message,
            code=error.code,
            exit_code=ExitCode.USAGE,
            remedy=f"{plugin_id}.{entry_id} takes {takes}",
        ) from error
    return checked


async def _create(node: Node, request: dict[str, Any]) -> RunAnswer:
    """Create a run, or resume the run that has this key if no process executes it."""
    from perdure.runtime.execution.recovery import take_up
    from perdure.runtime.kernel.principal import LOCAL
    from perdure.runtime.runs.part import runs_of

    before = await node.log.head()
    answer: RunAnswer = await node.operations.call(LOCAL, "runs.create", request)
    mark = await node.log.resolve(answer["cursor"])
    if mark.position <= before.position:
        await take_up(runs_of(node).executor, answer["run"]["run_id"])
    return answer


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
    from perdure.runtime.plugins.entries import Entries

    where = stated(**options)
    check_one_or_many(run, where)
    remote = remote_of(invocation)
    if run is None:
        change_many(invocation, remote, "retry", where, yes=yes)
        return
    interrupts = click.get_current_context().with_resource(Interrupts())
    passed = parsed_secrets(secrets)
    record = _record(invocation, run)
    if remote is not None:
        answer = _record_answer(invocation, run)
        if record["finished_at"] is not None:
            answer = remote.retry(record["run_id"], passed)
        _watch(invocation, remote, answer, interrupts)
    loaded = loaded_for(invocation)
    Entries(loaded.plugins).find(record["plugin_id"], record["entry_id"])

    async def begin(node: Node) -> RunAnswer:
        return await _again(node, record["run_id"], passed)

    _finish(invocation, loaded, begin, interrupts)


async def _again(node: Node, run_id: str, secrets: dict[str, Any]) -> RunAnswer:
    from perdure.runtime.execution.recovery import take_up
    from perdure.runtime.kernel.principal import LOCAL
    from perdure.runtime.runs.part import runs_of

    answer: RunAnswer = await node.operations.call(LOCAL, "runs.get", {"run_id": run_id})
    if answer["run"]["finished_at"] is None:
        await take_up(runs_of(node).executor, run_id)
    else:
        request = {"run_id": run_id, "secrets": secrets}
        answer = await node.operations.call(LOCAL, "runs.retry", request)
    return answer


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
    remote = remote_of(invocation)
    if run is None:
        change_many(invocation, remote, "cancel", {**where, "reason": reason}, yes=yes)
        return
    record = _record(invocation, run)
    run_id = record["run_id"]
    if record["finished_at"] is not None:
        answer: Any = {"run": record}
    elif remote is not None:
        answer = remote.cancel(run_id, reason)
    else:
        answer = trio.run(_cancel, invocation, run_id, reason)
    if invocation.json:
        invocation.give(answer)
        return
    status = answer["run"]["status"]
    late = " already" if record["finished_at"] is not None else ""
    invocation.say(f"{run_id} is {status}{late}.")


async def _cancel(invocation: Invocation, run_id: str, reason: str | None) -> Any:  # noqa: ANN401
    from perdure.runtime.kernel.local_node import open_local_node
    from perdure.runtime.kernel.principal import LOCAL
    from perdure.runtime.plugins.loading import LoadedPlugins
    from perdure.runtime.runs.part import runs_of

    async with open_local_node(invocation.settings, executing(invocation, LoadedPlugins())) as node:
        await node.operations.call(LOCAL, "runs.cancel", {"run_id": run_id, "reason": reason})
        await runs_of(node).executor.end_of(run_id)
        return await node.operations.call(LOCAL, "runs.get", {"run_id": run_id})


def _record(invocation: Invocation, run: str) -> Any:  # noqa: ANN401 - a RunRecord
    """Read a run before the log is opened for writing."""
    return _record_answer(invocation, run)["run"]


def _record_answer(invocation: Invocation, run: str) -> RunAnswer:
    answer: RunAnswer = reading(
        invocation, lambda reader: reader.call("runs.get", {"run_id": run_id_in(reader, run)})
    )
    return answer


def _watch(
    invocation: Invocation, remote: Remote, answer: RunAnswer, interrupts: Interrupts
) -> NoReturn:
    """Follow a run that a server executes, and exit with the code of its outcome."""
    import trio

    from perdure.runtime.runs.commands.watch import watch_run

    if not invocation.json:
        invocation.say(f"The server at {remote.server.url} executes the run.", err=True)
    code: ExitCode = trio.run(watch_run, invocation, answer, None, interrupts, remote)
    raise click.exceptions.Exit(code)


def _finish(
    invocation: Invocation, loaded: LoadedPlugins, begin: Begin, interrupts: Interrupts
) -> None:
    """Execute a run in this process, and exit with the code of its outcome."""
    import trio

    from perdure.runtime.runs.commands.local_run import execute

    with best_effort_output():
        code: ExitCode = trio.run(execute, invocation, loaded, begin, interrupts)
    raise click.exceptions.Exit(code)
