"""One seed of the world of runs, from its beginning to its last check."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import trio

from perdure.runtime.execution import execution
from tests.simulation.disk import Disk
from tests.simulation.run_checks import (
    check_live_state,
    check_log,
    checked_advance,
    let_all_end,
    let_secrets_go,
)
from tests.simulation.run_clients import keep_tidy, use_a_run
from tests.simulation.run_plugin import BODIES, DONE, REPEATED
from tests.simulation.run_world import RunWorld, run_server
from tests.simulation.world import Violation

CLIENTS = 4


class Complaints(logging.Handler):
    """What the server logs as an error: nothing may crash but by being killed."""

    def emit(self, record: logging.LogRecord) -> None:
        """Take it for a broken promise."""
        self.heard.append(f"{record.getMessage()}: {record.exc_info and record.exc_info[1]!r}")

    @contextmanager
    def listening(self) -> Iterator[list[str]]:
        """Listen to the server for the length of a block."""
        self.heard: list[str] = []
        logger = logging.getLogger("perdure")
        logger.addHandler(self)
        logger.propagate = False
        try:
            yield self.heard
        finally:
            logger.propagate = True
            logger.removeHandler(self)


async def live(chance: random.Random) -> str:
    """Live through one seed."""
    with (
        Complaints(logging.ERROR).listening() as complaints,
        mock.patch.object(execution, "advance", checked_advance),
    ):
        history = await live_and_check(chance)
    if complaints:
        raise Violation(f"the server complains: {complaints[0]}")
    return history


async def live_and_check(chance: random.Random) -> str:
    """Live through one seed, as far as it can be seen from outside."""
    for outside in (BODIES, DONE, REPEATED):
        outside.clear()
    world = RunWorld(chance, Disk(chance))
    async with trio.open_nursery() as everything:
        everything.start_soon(run_server, world)
        everything.start_soon(keep_tidy, world)
        async with trio.open_nursery() as clients:
            for number in range(CLIENTS):
                clients.start_soon(use_a_run, world, number)
        world.disk.heal()
        world.healed = True
        world.crashes_left = 0
        while not world.calm.is_set():
            if world.env is not None:
                world.env.kill()
            await trio.sleep(0.1)
        await let_all_end(world)
        await check_live_state(world)
        await let_secrets_go(world)
        everything.cancel_scope.cancel()
    check_log(world)
    return repr([r[:4] for r in world.disk.records])
