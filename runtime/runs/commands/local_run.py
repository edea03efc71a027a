"""Execution of one run in this process, with a user at the terminal."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from perdure.runtime.kernel.local_node import open_local_node
from perdure.runtime.kernel.principal import LOCAL
from perdure.runtime.kernel.terminal.interrupts import leave_soon
from perdure.runtime.kernel.terminal.invocation import ExitCode
from perdure.runtime.runs.commands.exit_code import exit_code_of
from perdure.runtime.runs.commands.follow import follow_run
from perdure.runtime.runs.commands.keyboard import Keyboard
from perdure.runtime.runs.commands.live_view import display_for
from perdure.runtime.runs.commands.plugins_loaded import executing
from perdure.runtime.runs.part import runs_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure.runtime.kernel.node import Node
    from perdure.runtime.kernel.terminal.interrupts import Interrupts
    from perdure.runtime.kernel.terminal.invocation import Invocation
    from perdure.runtime.plugins.loading import LoadedPlugins
    from perdure.runtime.runs.answers import RunAnswer
    from perdure.runtime.runs.commands.live_view import Display

    Begin = Callable[[Node], Awaitable[RunAnswer]]


async def execute(
    invocation: Invocation, loaded: LoadedPlugins, begin: Begin, interrupts: Interrupts
) -> ExitCode:
    """Begin a run as the log's writer and stay with it until its end.

    An interrupt while the node opens cancels the opening, and no run is created. Later interrupts
    are passed to the run.
    """
    code, opened = ExitCode.INTERRUPTED, trio.Event()
    with interrupts.listening():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_opening, interrupts, opened, nursery.cancel_scope)
            async with open_local_node(invocation.settings, executing(invocation, loaded)) as node:
                opened.set()
                await trio.lowlevel.checkpoint_if_cancelled()
                code = await _stay_with(node, invocation, begin, interrupts)
            nursery.cancel_scope.cancel()
    return code


async def _stop_opening(
    interrupts: Interrupts, opened: trio.Event, scope: trio.CancelScope
) -> None:
    await interrupts.first()
    if not opened.is_set():
        scope.cancel()


async def _stay_with(
    node: Node, invocation: Invocation, begin: Begin, interrupts: Interrupts
) -> ExitCode:
    display = display_for(invocation)
    try:
        answer = await begin(node)
        run_id = answer["run"]["run_id"]
        display.begin(answer["run"], answer["cursor"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_obey, interrupts, node, run_id, display)
            if answer["run"]["finished_at"] is None:
                if answer["run"]["started_at"] is not None:
                    display.note("Resuming the run where it stopped.")
                keyboard = None
                if not invocation.json:
                    keyboard = _keyboard(node, run_id, display, nursery)
                    await _ask_again(node, answer, keyboard)
                await follow_run(node.log, run_id, answer["cursor"], display, keyboard)
            ended = await node.operations.call(LOCAL, "runs.get", {"run_id": run_id})
            display.end(ended["run"], ended["cursor"])
            code = exit_code_of(ended["run"]["status"])
            if interrupts.count > 1:
                leave_soon(code)
            await runs_of(
                node
            ).executor.settled()  # the children of the run end before this process
            nursery.cancel_scope.cancel()
    finally:
        display.close()
    return code


def _keyboard(node: Node, run_id: str, display: Display, nursery: trio.Nursery) -> Keyboard:
    give = partial(_give, node, run_id)
    return Keyboard(display, give, nursery, otherwise="Ctrl-C ends the run.")


async def _ask_again(node: Node, answer: RunAnswer, keyboard: Keyboard) -> None:
    """Show the open questions that an earlier process asked."""
    request = {"run_id": answer["run"]["run_id"], "at": answer["cursor"]}
    page = await node.operations.call(LOCAL, "runs.questions", request)
    for each in page["questions"]:
        keyboard.asked(each["question_id"], each["question"])


async def _give(node: Node, run_id: str, question_id: str, answer: Any) -> None:  # noqa: ANN401
    request = {"run_id": run_id, "question_id": question_id, "answer": answer}
    await node.operations.call(LOCAL, "runs.answer", request)


async def _obey(interrupts: Interrupts, node: Node, run_id: str, display: Display) -> None:
    """Pass Ctrl-C or SIGTERM on to the run: first ask, then force."""
    await interrupts.first()
    display.note("Asked the run to end. A second Ctrl-C forces it, a third one kills this process.")
    asked = {"run_id": run_id, "reason": interrupts.name}
    await node.operations.call(LOCAL, "runs.cancel", asked)
    if interrupts.count < 2:  # noqa: PLR2004 - the second
        await interrupts.next()
    display.note("Forcing the run to end.")
    await node.operations.call(LOCAL, "runs.cancel", asked | {"force": True})
