"""A small world around the log: a disk, a server that crashes, and clients that call it.

Clients live outside the server's process. They repeat an append with the same event ids until it
is answered. Nothing they were told may ever turn out untrue.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from perdure.eventlog import cbor
from perdure.eventlog.env import FaultPoint
from perdure.eventlog.errors import (
    Conflict,
    EventLogError,
    LogClosed,
    ScopeMoved,
    StreamSealed,
    Unavailable,
    WrongExpectedVersion,
)
from perdure.eventlog.log import EventLog, open_log
from perdure.eventlog.record import Metadata, NewEvent
from perdure.eventlog.simulation import Dead, SimEnv
from perdure.eventlog.tail import TailLimits
from perdure.eventlog.writer import WriterLimits
from tests.simulation.disk import Disk, DiskView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from perdure.eventlog.append import Receipt


class Violation(AssertionError):
    """The log broke a promise."""


@dataclass
class World:
    """Everything of one seed."""

    chance: random.Random
    disk: Disk
    server: EventLog | None = None
    server_env: SimEnv | None = None
    acked: set[bytes] = field(default_factory=set)
    crashes_left: int = 0
    lives: int = 0
    calm: trio.Event = field(default_factory=trio.Event)
    finished: trio.Event = field(default_factory=trio.Event)

    async def call(self, fn: Callable[[EventLog], Awaitable[Receipt]]) -> Receipt:
        """Ask the server until there is an answer. A dead server's answers are not heard."""
        while True:
            log, env = self.server, self.server_env
            if log is not None and env is not None:
                answer = await self._try(log, env, fn)
                if answer is not None and not env.died.is_set():
                    if isinstance(answer, Conflict):
                        raise answer
                    return answer
            await trio.sleep(self.chance.choice([0, 0.05, 0.3]))

    async def _try(
        self, log: EventLog, env: SimEnv, fn: Callable[[EventLog], Awaitable[Receipt]]
    ) -> Receipt | Conflict | None:
        answer: Receipt | Conflict | None = None
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_when, env.died, scope)
                if self.chance.random() < 0.1:
                    scope.deadline = trio.current_time() + self.chance.choice([0, 0.001, 0.1])
                try:
                    answer = await fn(log)
                except Conflict as conflict:
                    self.check_conflict(conflict)
                    answer = conflict
                except (LogClosed, Unavailable, Dead):
                    pass
                scope.cancel()
        return answer

    def check_conflict(self, conflict: Conflict) -> None:
        """Whoever is told of a conflict can rely on its cause: it is on disk."""
        match conflict:
            case WrongExpectedVersion(stream=stream, actual=actual):
                durable = self.disk.stream_state(stream).version >= actual
            case StreamSealed(stream=stream):
                durable = self.disk.stream_state(stream).sealed
            case ScopeMoved(scope=scope, actual=actual):
                durable = self.disk.scope_position(scope) >= actual
            case _:
                durable = False
        if not durable:
            raise Violation(f"a conflict without a durable cause: {conflict}")


async def cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    """Cancel a scope when something has happened."""
    await event.wait()
    scope.cancel()


def new_event(world: World, **content: cbor.Value) -> NewEvent:
    """Mint an event outside any server, as clients do."""
    return NewEvent(
        name=world.chance.choice(["sim.moved", "sim.noted"]),
        body=cbor.encode(content),
        event_id=world.chance.getrandbits(128).to_bytes(16, "big"),
        event_time=0,
        meta=Metadata(fields={"kind": world.chance.choice(["a", "b"])}).encode(),
    )


# The server


async def run_server(world: World) -> None:
    """Run the server process, crash it, run it again; in the end leave it alone."""
    world.crashes_left = world.chance.randrange(5)
    while not world.finished.is_set():
        env = SimEnv(world.chance)
        env.wall_offset = world.chance.choice([0, 0, 86_400 * 10**9, -86_400 * 10**9])
        if world.crashes_left:
            world.crashes_left -= 1
            plan_crash(world.chance, env, 12)
        else:
            world.calm.set()
        try:
            await run_process(world, env)
        except* (Dead, EventLogError):
            pass
        env.kill()
        world.server, world.server_env = None, None
        world.lives += 1
        await trio.sleep(world.chance.choice([0, 0.1, 0.5]))


async def run_process(world: World, env: SimEnv) -> None:
    """Be one incarnation of the server, until it is killed or the end."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_when, env.died, nursery.cancel_scope)
        async with open_log(
            env,
            DiskView(world.disk, env),
            tail_limits=TailLimits(records=world.chance.choice([2, 8, 1000])),
            writer_limits=WriterLimits(queued_appends=3, batch_appends=world.chance.choice([2, 9])),
        ) as log:
            world.server, world.server_env = log, env
            await world.finished.wait()
        nursery.cancel_scope.cancel()


def plan_crash(chance: random.Random, env: SimEnv, latest: int) -> None:
    """Choose a point and a time to pass it, ``latest`` at the latest: there the process dies."""
    point = chance.choice(list(FaultPoint))
    left = chance.randrange(1, latest)

    def count_down() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            env.kill()

    env.faults.planted[point] = count_down


async def trouble_the_disk(world: World) -> None:
    """Fill the disk now and then, and heal it in the end."""
    for _ in range(world.chance.randrange(3)):
        await trio.sleep(world.chance.uniform(0, 1))
        world.disk.full = True
        await trio.sleep(world.chance.uniform(0, 1))
        world.disk.full = False
    await trio.sleep(2)
    world.disk.heal()
