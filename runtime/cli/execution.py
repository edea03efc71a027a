"""Executing one run in this process, with somebody at the keyboard."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import trio

from runtime.cli.display import display_for
from runtime.cli.following import follow_run
from runtime.cli.interrupts import Interrupts, leave_soon
from runtime.cli.invocation import ExitCode, encoded, exit_code_of
from runtime.cli.parameters import typed
from runtime.cli.words import one_line
from runtime.errors import OperationError
from runtime.local import open_local_node
from runtime.operations.principal import LOCAL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.run.events import QuestionAsked
    from runtime.cli.display import Display
    from runtime.cli.invocation import Invocation
    from runtime.node import Node
    from runtime.operations.answers import RunAnswer
    from runtime.plugins.loading import Loaded

    Begin = Callable[[Node], Awaitable[RunAnswer]]


async def execute(invocation: Invocation, loaded: Loaded, begin: Begin) -> ExitCode:
    """Begin a run as the log's writer and stay with it until its end."""
    display = display_for(invocation)
    try:
        async with open_local_node(invocation.settings, loaded, only=()) as node:
            with Interrupts() as interrupts:
                answer = await begin(node)
                run_id = answer["run"]["run_id"]
                display.begin(answer["run"], answer["cursor"])
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_obey, interrupts, node, run_id, display)
                    if answer["run"]["finished_at"] is None:
                        if answer["run"]["started_at"] is not None:
                            display.note("It had not ended: going on where it was left.")
                        keyboard = partial(_at_the_keyboard, invocation, node, run_id, display)
                        await follow_run(
                            node.host.log,
                            run_id,
                            answer["cursor"],
                            display,
                            lambda question: nursery.start_soon(keyboard, question),
                        )
                    ended = await node.operations.call(LOCAL, "runs.get", {"run_id": run_id})
                    display.end(ended["run"], ended["cursor"])
                    code = exit_code_of(ended["run"]["status"])
                    if interrupts.count > 1:
                        leave_soon(code)
                    await node.host.settled()  # what the run has started ends with this process
                    nursery.cancel_scope.cancel()
    finally:
        display.close()
    return code


async def _at_the_keyboard(
    invocation: Invocation, node: Node, run_id: str, display: Display, asked: QuestionAsked
) -> None:
    """Pass a question of the run on to whoever sits here, and the answer back."""
    if invocation.json:
        return
    question = asked.question
    text = question.get("text") if isinstance(question, dict) else None
    display.note(f"The run asks: {one_line(text or encoded(question))}")
    if not sys.stdin.isatty():
        display.note("There is nobody to answer it here; Ctrl-C ends the run.")
        return
    display.note("Type an answer (JSON, or text) and press Enter:")
    display.pause(paused=True)
    await trio.lowlevel.wait_readable(sys.stdin)
    line = sys.stdin.readline()
    display.pause(paused=False)
    if line:
        answer = {"question_id": asked.question_id, "answer": typed(line.rstrip("\n"))}
        try:
            await node.operations.call(LOCAL, "runs.answer", {"run_id": run_id, **answer})
        except OperationError as error:  # the run has ended meanwhile, say
            display.note(error.message)


async def _obey(interrupts: Interrupts, node: Node, run_id: str, display: Display) -> None:
    """Pass Ctrl-C or SIGTERM on to the run: first ask, then force."""
    await interrupts.next()
    display.note("Asked the run to end. Ctrl-C again forces it, a third one leaves at once.")
    asked = {"run_id": run_id, "reason": interrupts.name}
    await node.operations.call(LOCAL, "runs.cancel", asked)
    if interrupts.count < 2:  # noqa: PLR2004 - the second
        await interrupts.next()
    display.note("Forcing it to end.")
    await node.operations.call(LOCAL, "runs.cancel", asked | {"force": True})
