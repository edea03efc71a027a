"""Staying with a run until its end: showing it, asking the user its questions, hearing Ctrl-C."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import trio

from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.terminal.interrupts import leave_soon
from perdure.runtime.kernel.terminal.invocation import CommandRefusal, ExitCode
from perdure.runtime.kernel.terminal.output import best_effort_output
from perdure.runtime.runs.commands.exit_code import exit_code_of
from perdure.runtime.runs.commands.keyboard import Keyboard
from perdure.runtime.runs.commands.live_view import display_for
from perdure.runtime.runs.commands.outcome import traceback_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from perdure.runtime.client.choice import Choice
    from perdure.runtime.client.client import Client
    from perdure.runtime.kernel.terminal.interrupts import Interrupts
    from perdure.runtime.kernel.terminal.invocation import Invocation
    from perdure.runtime.runs.answers import RunAnswer
    from perdure.runtime.runs.commands.live_view import Display

    Begin = Callable[[Client], Awaitable[RunAnswer]]

TICK: Final = 0.25  # seconds between two updates of the elapsed time


def stay(invocation: Invocation, choice: Choice, begin: Begin, interrupts: Interrupts) -> ExitCode:
    """Begin a run, here or on a server, and stay with it; give the code of its outcome."""
    return trio.run(_stay, invocation, choice, begin, interrupts)


async def _stay(
    invocation: Invocation, choice: Choice, begin: Begin, interrupts: Interrupts
) -> ExitCode:
    """Begin and stay. An interrupt before there is a run to end cancels all of it.

    A run that is executed here goes on if nobody reads its output.
    """
    code, begun = ExitCode.INTERRUPTED, trio.Event()
    with interrupts.listening(), best_effort_output() if choice.is_here else nullcontext():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_beginning, interrupts, begun, nursery.cancel_scope)
            async with choice.client(writing=True) as client:
                if choice.is_here:
                    begun.set()
                    await trio.lowlevel.checkpoint_if_cancelled()
                    code = await _execute(client, invocation, await begin(client), interrupts)
                else:
                    answer = await begin(client)
                    begun.set()
                    invocation.note(f"{choice.server_name} executes the run.")
                    code = await watch_run(
                        client,
                        invocation,
                        choice,
                        answer,
                        interrupts,
                        is_answering=not invocation.json,
                    )
            nursery.cancel_scope.cancel()
    return code


async def _stop_beginning(
    interrupts: Interrupts, begun: trio.Event, scope: trio.CancelScope
) -> None:
    await interrupts.first()
    if not begun.is_set():
        scope.cancel()


async def _execute(
    client: Client, invocation: Invocation, answer: RunAnswer, interrupts: Interrupts
) -> ExitCode:
    """Stay with a run that this process executes: an interrupt is passed on to the run."""
    display, run_id = display_for(invocation), answer["run"]["run_id"]
    try:
        display.begin(answer["run"], answer["cursor"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_obey, interrupts, client, run_id, display)
            nursery.start_soon(_tick, display)
            if answer["run"]["finished_at"] is None:
                if answer["run"]["started_at"] is not None:
                    display.note("Resuming the run where it stopped.")
                keyboard = None
                if not invocation.json:
                    otherwise = "Ctrl-C ends the run."
                    keyboard = Keyboard(client, run_id, display, nursery, otherwise=otherwise)
                await _follow(client, invocation, answer, display, keyboard=keyboard)
            code = await _show_end(client, run_id, display)
            if interrupts.count > 1:
                leave_soon(code)
            await client.settled()  # the children of the run end before this process
            nursery.cancel_scope.cancel()
    finally:
        display.close()
    return code


async def watch_run(
    client: Client,
    invocation: Invocation,
    choice: Choice,
    answer: RunAnswer,
    interrupts: Interrupts,
    *,
    after: str | None = None,
    is_answering: bool = False,
) -> ExitCode:
    """Stay with a run that another process executes: an interrupt only ends the watching."""
    display, run = display_for(invocation), answer["run"]
    run_id, is_over = run["run_id"], run["finished_at"] is not None
    try:
        display.begin(run, answer["cursor"])
        if not is_over and not client.at_work:
            display.note("No process is at work on this log; waiting for one (Ctrl-C stops).")
            display.note(f"Resume the run here: perdure retry {run_id}")
        if not is_over or after is not None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(interrupts.cancel, nursery.cancel_scope)
                nursery.start_soon(_tick, display)
                keyboard = None
                if is_answering:
                    otherwise = f"use: perdure answer {run_id}"
                    keyboard = Keyboard(client, run_id, display, nursery, otherwise=otherwise)
                with _telling_how_to_go_on(choice, run_id):
                    await _follow(
                        client, invocation, answer, display, keyboard=keyboard, after=after
                    )
                nursery.cancel_scope.cancel()
            if interrupts.count:
                _say_that_it_continues(client, run_id, display)
                return ExitCode.INTERRUPTED
        return await _show_end(client, run_id, display)
    finally:
        display.close()


def _say_that_it_continues(client: Client, run_id: str, display: Display) -> None:
    if client.at_work:
        display.note("Stopped watching; the run continues.")
    else:
        display.note(f"Stopped watching. Resume the run: perdure retry {run_id}")


async def _show_end(client: Client, run_id: str, display: Display) -> ExitCode:
    ended: RunAnswer = await client.call("runs.get", {"run_id": run_id})
    display.end(ended["run"], ended["cursor"], await traceback_of(client, ended["run"]))
    return exit_code_of(ended["run"]["status"])


# Following


@contextmanager
def _telling_how_to_go_on(choice: Choice, run_id: str) -> Iterator[None]:
    """Let the loss of the process that executes a run say what the user can do."""
    try:
        yield
    except OperationError as error:
        if error.code != "UNAVAILABLE":
            raise
        remedy = f"`perdure retry {run_id}` resumes the run here; `perdure serve` resumes all runs."
        if choice.is_elsewhere:
            remedy = f"`perdure watch {run_id}` follows the run once the server is back."
        raise CommandRefusal(
            f"{error.message[:1].upper()}{error.message[1:]}: nothing more is heard of the run.",
            code=error.code,
            exit_code=ExitCode.UNAVAILABLE,
            remedy=remedy,
        ) from error


async def _follow(
    client: Client,
    invocation: Invocation,
    answer: RunAnswer,
    display: Display,
    *,
    keyboard: Keyboard | None,
    after: str | None = None,
) -> None:
    """Show the events of a run after a cursor until its end; the keyboard gets its questions."""
    run_id, place = answer["run"]["run_id"], after or answer["cursor"]
    limit = 1 if invocation.json else None  # a program gets the cursor of each event
    async with client.follow("run", after=place, run_id=run_id, limit=limit) as follow:
        if keyboard is not None:
            await keyboard.look()
        async for delivery in follow:
            has_asked = [_show(event, delivery.cursor or "", display) for event in delivery.events]
            if keyboard is not None and any(has_asked):
                await keyboard.look()


def _show(event: Any, cursor: str, display: Display) -> bool:  # noqa: ANN401 - a RunEvent
    """Show an event; tell whether the run has another stage: it may have asked something."""
    if "export" in event:
        display.item(event["export"], cursor)
        return False
    display.change(event["run"], cursor)
    return "stage" in event["run"]


async def _tick(display: Display) -> None:
    while True:
        await trio.sleep(TICK)
        display.tick()


async def _obey(interrupts: Interrupts, client: Client, run_id: str, display: Display) -> None:
    """Pass Ctrl-C or SIGTERM on to the run: first ask, then force."""
    await interrupts.first()
    display.note("Asked the run to end. A second Ctrl-C forces it, a third one kills this process.")
    asked = {"run_id": run_id, "reason": interrupts.name}
    await client.call("runs.cancel", asked)
    if interrupts.count < 2:  # noqa: PLR2004 - the second
        await interrupts.next()
    display.note("Forcing the run to end.")
    await client.call("runs.cancel", asked | {"force": True})
