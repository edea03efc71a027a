"""`perdure watch`: follow a run that another process executes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from perdure.runtime.kernel.terminal.command import Command, common
from perdure.runtime.kernel.terminal.interrupts import Interrupts
from perdure.runtime.kernel.terminal.invocation import (
    CommandRefusal,
    ExitCode,
    Invocation,
    pass_invocation,
)
from perdure.runtime.runs.commands.exit_code import exit_code_of
from perdure.runtime.runs.commands.lists import is_held
from perdure.runtime.runs.commands.parameters import RunName
from perdure.runtime.runs.commands.show import questions_of, reading, run_id_in

if TYPE_CHECKING:
    import trio
    from trio import Nursery

    from perdure.runtime.runs.answers import RunAnswer
    from perdure.runtime.runs.commands.keyboard import Keyboard
    from perdure.runtime.runs.commands.live_view import Display
    from perdure.runtime.runs.commands.remote import Remote

LOOKS: Final = 3  # seconds without a writer before it gives up: a server may be restarting


@click.command(
    cls=Command,
    short_help="Follow a run that another process executes.",
    examples=[
        "perdure watch RUN",
        "perdure watch RUN --json",
        "perdure watch RUN --after CURSOR",
    ],
)
@click.argument("run", type=RunName())
@click.option("--after", metavar="CURSOR", help="Start with the events after this cursor.")
@common
@pass_invocation
def watch(invocation: Invocation, run: str, after: str | None) -> None:
    """Follow a run until its end; the exit code tells the outcome.

    Ctrl-C stops watching; the run continues. Exit code 5: the process that executed the run is
    gone.
    """
    interrupts = click.get_current_context().with_resource(Interrupts())
    answer: RunAnswer = reading(
        invocation, lambda reader: reader.call("runs.get", {"run_id": run_id_in(reader, run)})
    )
    if after is not None:
        reading(invocation, lambda reader: reader.call("runs.list", {"after": after, "limit": 1}))
    import trio

    code = trio.run(watch_run, invocation, answer, after, interrupts)
    raise click.exceptions.Exit(code)


async def watch_run(
    invocation: Invocation,
    answer: RunAnswer,
    after: str | None,
    interrupts: Interrupts,
    remote: Remote | None = None,
) -> ExitCode:
    """Follow a run that another process executes; answers typed here go to the server."""
    with interrupts.listening():
        return await _watch(invocation, answer, after, interrupts, remote)


async def _watch(
    invocation: Invocation,
    answer: RunAnswer,
    after: str | None,
    interrupts: Interrupts,
    remote: Remote | None,
) -> ExitCode:
    from contextlib import closing

    import trio

    from perdure.actors.run.status import ENDED
    from perdure.actors.run.views import record
    from perdure.eventlog.env import RealEnv
    from perdure.eventlog.log import open_log
    from perdure.eventlog.sqlite import SqliteStore
    from perdure.runtime.kernel.principal import LOCAL
    from perdure.runtime.runs.commands.follow import follow_run
    from perdure.runtime.runs.commands.live_view import display_for
    from perdure.runtime.runs.reader import RunReader

    run, cursor = answer["run"], answer["cursor"]
    begun = remote is not None or is_held(invocation)
    _, questions = reading(invocation, lambda reader: questions_of(reader, run["run_id"], cursor))
    display = display_for(invocation)
    try:
        display.begin(run, cursor)
        if run["status"] not in ENDED and not begun:
            display.note("No process is at work on this log; waiting for one (Ctrl-C stops).")
            display.note(f"Resume the run here: perdure retry {run['run_id']}")
        with closing(SqliteStore.open_reader(invocation.data.log)) as store:
            async with open_log(RealEnv(), store) as log:
                begin = await log.resolve(after or cursor)
                known = await log.resolve(cursor)
                if run["status"] not in ENDED or begin.position < known.position:
                    left = trio.Event()
                    async with trio.open_nursery() as nursery:
                        scope = nursery.cancel_scope
                        nursery.start_soon(interrupts.cancel, scope)
                        nursery.start_soon(_look_for_writer, invocation, begun, left, scope)
                        keyboard = None
                        if remote is not None and not invocation.json:
                            keyboard = _keyboard(remote, run["run_id"], display, nursery)
                            for each in questions:
                                keyboard.asked(each["question_id"], each["question"])
                        await follow_run(log, run["run_id"], begin, display, keyboard)
                        scope.cancel()
                    if left.is_set():
                        raise _left(run["run_id"])
                    if interrupts.count:
                        if is_held(invocation):
                            display.note("Stopped watching; the run continues.")
                        else:
                            again = f"perdure retry {run['run_id']}"
                            display.note(f"Stopped watching. Resume the run: {again}")
                        return ExitCode.INTERRUPTED
                ended = await RunReader(log).now(LOCAL, run["run_id"])
                run, cursor = record(ended.state, ended.commit_time), log.cursor(ended.mark)
        display.end(run, cursor)
    finally:
        display.close()
    return exit_code_of(run["status"])


async def _look_for_writer(
    invocation: Invocation,
    seen: bool,  # noqa: FBT001 - trio passes arguments by place
    left: trio.Event,
    scope: trio.CancelScope,
) -> None:
    """Stop watching when the log's writer is gone."""
    import trio

    missed = 0
    while missed < LOOKS:
        if is_held(invocation):
            seen, missed = True, 0
        elif seen:
            missed += 1
        await trio.sleep(1)
    left.set()
    scope.cancel()


def _left(run_id: str) -> CommandRefusal:
    return CommandRefusal(
        "No process is at work on this log any more: the process that executed the run is gone.",
        code="UNAVAILABLE",
        exit_code=ExitCode.UNAVAILABLE,
        remedy=f"`perdure retry {run_id}` resumes the run here; `perdure serve` resumes all runs.",
    )


def _keyboard(remote: Remote, run_id: str, display: Display, nursery: Nursery) -> Keyboard:
    from functools import partial

    from perdure.runtime.runs.commands.keyboard import Keyboard

    give, otherwise = partial(_give, remote, run_id), f"use: perdure answer {run_id}"
    return Keyboard(display, give, nursery, otherwise=otherwise)


async def _give(remote: Remote, run_id: str, question_id: str, answer: Any) -> None:  # noqa: ANN401
    """Send an answer to the server, in a thread: the request blocks."""
    import trio

    from perdure.eventlog.env import RealEnv

    limiter = trio.CapacityLimiter(1)
    await RealEnv().run_sync(remote.answer, run_id, question_id, answer, limiter=limiter)
