"""Clients that follow from a cursor, through all crashes."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from perdure.eventlog.errors import LogClosed
from perdure.eventlog.filter import EVERYTHING, Filter
from perdure.eventlog.follow import FollowLimits
from perdure.eventlog.log import EventLog, open_log
from perdure.eventlog.record import Record
from perdure.eventlog.simulation import Dead, SimEnv
from tests.simulation.disk import DiskView
from tests.simulation.world import Violation, World, cancel_when


@dataclass
class Follower:
    """A client that follows from a cursor, through all crashes."""

    world: World
    where: Filter = EVERYTHING
    beside: bool = False
    cursor: str | None = None
    seen: list[Record] = field(default_factory=list)

    async def run(self) -> None:
        """Connect, follow, lose the connection, connect again."""
        while True:
            try:
                if self.beside:
                    await self.follow_beside()
                else:
                    await self.follow_server()
            except* (Dead, LogClosed):
                pass
            await trio.sleep(self.world.chance.choice([0, 0.02, 0.2]))

    async def follow_server(self) -> None:
        """Follow the server of the moment until it dies or the connection is cut."""
        log, env = self.world.server, self.world.server_env
        if log is None or env is None:
            return
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_when, env.died, scope)
                await self.follow(log, env)
                scope.cancel()

    async def follow_beside(self) -> None:
        """Follow from a reading process of our own."""
        env = SimEnv(self.world.chance)
        with trio.move_on_after(self.world.chance.choice([1, 60, 3600])):
            async with open_log(env, DiskView(self.world.disk, env, writable=False)) as log:
                await self.follow(log, env)

    async def follow(self, log: EventLog, env: SimEnv) -> None:
        """Pull batches, slowly or fast."""
        chance = self.world.chance
        limits = FollowLimits(records=chance.choice([1, 3, 100]), heartbeat=5)
        follow = await log.follow(self.cursor, self.where, limits)
        while True:
            batch = await follow.next_batch()
            if env.died.is_set():
                return
            self.seen.extend(batch.records)
            self.cursor = batch.cursor
            await trio.sleep(chance.choice([0, 0, 0, 0.05]))
            if chance.random() < 0.05 and not self.world.calm.is_set():
                return

    def check(self, final: bool) -> bool:
        """Tell whether all was seen; a gap, a duplicate or a wrong order is a violation."""
        wanted = [r for r in self.world.disk.records if self.where.matches(r)]
        if self.seen != wanted[: len(self.seen)]:
            raise Violation(f"a follower of {self.where} saw something else than the log")
        if final and len(self.seen) < len(wanted):
            raise Violation(f"a follower of {self.where} stands still before the end of the log")
        return len(self.seen) == len(wanted)


FILTERS = (
    EVERYTHING,
    Filter(scopes=frozenset({"session/0"})),
    Filter(streams=frozenset({"run/1"})),
    Filter(names=frozenset({"sim.noted"})),
    Filter(fields={"kind": frozenset({"a"})}),
    Filter(names=frozenset({"sim.never"})),
)
