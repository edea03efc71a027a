"""Executing one run in this process, with somebody at the keyboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from runtime.cli.display import display_for
from runtime.cli.following import follow_run
from runtime.cli.interrupts import Interrupts, leave_soon
from runtime.cli.invocation import ExitCode, exit_code_of
from runtime.local import open_local_node
from runtime.principal import LOCAL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from runtime.answers import RunAnswer
    from runtime.cli.display import Display
    from runtime.cli.invocation import Invocation
    from runtime.node import Node
    from runtime.plugin import Plugin

    Begin = Callable[[Node], Awaitable[RunAnswer]]


async def execute(invocation: Invocation, plugins: Mapping[str, Plugin], begin: Begin) -> ExitCode:
    """Begin a run as the log's writer and stay with it until its end."""
    display = display_for(invocation)
    try:
        async with open_local_node(invocation.settings, plugins, only=()) as node:
            with Interrupts() as interrupts:
                answer = await begin(node)
                run_id = answer["run"]["run_id"]
                display.begin(answer["run"], answer["cursor"])
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_obey, interrupts, node, run_id, display)
                    if answer["run"]["finished_at"] is None:
                        if answer["run"]["started_at"] is not None:
                            display.note("It had not ended: going on where it was left.")
                        await follow_run(node.host.log, run_id, answer["cursor"], display)
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


async def _obey(interrupts: Interrupts, node: Node, run_id: str, display: Display) -> None:
    """Pass Ctrl-C on to the run: first ask, then force."""
    await interrupts.next()
    display.note("Asked the run to end. Ctrl-C again forces it, a third one leaves at once.")
    asked = {"run_id": run_id, "reason": "Ctrl-C"}
    await node.operations.call(LOCAL, "runs.cancel", asked)
    if interrupts.count < 2:  # noqa: PLR2004 - the second
        await interrupts.next()
    display.note("Forcing it to end.")
    await node.operations.call(LOCAL, "runs.cancel", asked | {"force": True})
