"""A small world around the log: a disk, a server that crashes, writers, followers, an oracle.

Writers and followers live outside the server's process, as clients do. A writer repeats an append
with the same event ids until it is answered; a follower keeps its cursor and what it has seen.
Nothing they were told may ever turn out untrue.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from eventlog import cbor
from eventlog.append import Append, StreamWrite, Unmoved
from eventlog.env import FaultPoint
from eventlog.errors import (
    Conflict,
    DiskFull,
    EventLogError,
    LogClosed,
    ScopeMoved,
    StoreBusy,
    StoreFailed,
    StreamSealed,
    Unavailable,
    WrongExpectedVersion,
)
from eventlog.filter import EVERYTHING, Filter
from eventlog.follow import FollowLimits
from eventlog.log import EventLog, open_log
from eventlog.memory import MemoryStore
from eventlog.record import Metadata, NewEvent, Record
from eventlog.simulation import Dead, SimEnv
from eventlog.store import Bounds
from eventlog.tail import TailLimits
from eventlog.writer import WriterLimits

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Sequence

    from eventlog.append import Receipt

WRITERS = 4
CLAIMS = 3


class Violation(AssertionError):
    """The log broke a promise."""


class Disk(MemoryStore):
    """What survives every crash, and how it may fail."""

    def __init__(self, chance: random.Random) -> None:
        """Draw how bad this disk is; some are perfect."""
        super().__init__()
        self.chance = chance
        self.fails_before = chance.choice([0, 0, 0.02])
        self.fails_after = chance.choice([0, 0, 0.05])
        self.busy = chance.choice([0, 0, 0.1])
        self.full = False

    def heal(self) -> None:
        """Fail no more."""
        self.fails_before = self.fails_after = self.busy = 0
        self.full = False

    @property
    def records(self) -> list[Record]:
        """Everything that is durable."""
        return self.read_all(0, Bounds(records=1 << 30, bytes=1 << 40)).records


class DiskView(MemoryStore):
    """The disk as one process sees it: what the process does after its death has no effect."""

    def __init__(self, disk: Disk, env: SimEnv, *, writable: bool = True) -> None:
        """Share the disk's records."""
        super().__init__(disk.generation, writable=writable)
        self._records, self._streams, self._scopes = disk._records, disk._streams, disk._scopes
        self._disk = disk
        self._env = env

    def commit(self, records: Sequence[Record]) -> None:
        """Write, unless the disk or the process fails; or write and then fail."""
        disk, chance = self._disk, self._disk.chance
        self._env.faults.strike(FaultPoint.STORE_BEGIN)
        if disk.full:
            raise DiskFull("simulated")
        if chance.random() < disk.busy:
            raise StoreBusy("simulated")
        if chance.random() < disk.fails_before:
            raise StoreFailed("simulated, nothing written")
        super().commit(records)
        self._env.faults.strike(FaultPoint.STORE_END)
        if chance.random() < disk.fails_after:
            raise StoreFailed("simulated, but written")


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
                nursery.start_soon(_cancel_when, env.died, scope)
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


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
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
            plan_crash(world, env)
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
        nursery.start_soon(_cancel_when, env.died, nursery.cancel_scope)
        async with open_log(
            env,
            DiskView(world.disk, env),
            tail_limits=TailLimits(records=world.chance.choice([2, 8, 1000])),
            writer_limits=WriterLimits(queued_appends=3, batch_appends=world.chance.choice([2, 9])),
        ) as log:
            world.server, world.server_env = log, env
            await world.finished.wait()
        nursery.cancel_scope.cancel()


def plan_crash(world: World, env: SimEnv) -> None:
    """Choose a point and a time to pass it: there the process dies."""
    point = world.chance.choice(list(FaultPoint))
    left = world.chance.randrange(1, 12)

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


# Writers


async def write_own_stream(world: World, number: int) -> None:
    """Write a stream that nobody else writes: every append must get through, once."""
    stream, scope, version = f"run/{number}", f"session/{number % 2}", 0
    for step in range(world.chance.randrange(2, 7)):
        await trio.sleep(world.chance.choice([0, 0, 0.01, 0.3]))
        events = [new_event(world, step=step) for _ in range(world.chance.choice([1, 1, 3]))]
        writes = [StreamWrite(stream, version, events, scope)]
        if world.chance.random() < 0.3:
            twin = new_event(world, twin_of=events[0].event_id)
            writes.append(StreamWrite(f"side/{number}/{step}", 0, [twin], scope, seal=True))
        append = Append(writes)
        new_work = world.chance.random() < 0.5
        try:
            receipt = await world.call(lambda log, a=append, n=new_work: log.append(a, new_work=n))  # type: ignore[misc]
        except Conflict as conflict:
            raise Violation(f"writer {number} lost its own stream: {conflict}") from conflict
        check_receipt(world, append, receipt)
        version += len(events)
    await seal(world, stream, scope, version)


async def seal(world: World, stream: str, scope: str, version: int) -> None:
    """End a stream, and find that nothing can follow."""
    append = Append([StreamWrite(stream, version, [new_event(world, end=True)], scope, seal=True)])
    check_receipt(world, append, await world.call(lambda log: log.append(append)))
    late = Append([StreamWrite(stream, version + 1, [new_event(world, late=True)], scope)])
    try:
        await world.call(lambda log: log.append(late))
    except StreamSealed:
        return
    raise Violation(f"{stream} took a record after its seal")


def check_receipt(world: World, append: Append, receipt: Receipt) -> None:
    """An answer names the records of this very append, and they are on disk."""
    wanted = [event.event_id for write in append.writes for event in write.events]
    if [record.event_id for record in receipt.records] != wanted:
        raise Violation("a receipt for other events")
    durable = {record.event_id for record in world.disk.records}
    if not durable.issuperset(wanted):
        raise Violation("answered before it was on disk")
    world.acked.update(wanted)


async def claim_a_key(world: World, number: int) -> None:
    """Race with another caller for one key: one of them gets it."""
    await trio.sleep(world.chance.choice([0, 0, 0.1, 1]))
    stream = f"claim/{number % CLAIMS}"
    append = Append([StreamWrite(stream, 0, [new_event(world, by=number)])])
    try:
        receipt = await world.call(lambda log: log.append(append))
    except WrongExpectedVersion:
        return
    check_receipt(world, append, receipt)


async def write_if_unmoved(world: World, number: int) -> None:
    """Read a scope, decide, and write only if it has not moved meanwhile."""
    scope = "session/shared"
    for attempt in range(20):
        event = new_event(world, note=number)
        position = world.disk.scope_position(scope)
        await trio.sleep(world.chance.choice([0, 0.01]))
        write = StreamWrite(f"note/{number}/{attempt}", 0, [event], scope)
        append = Append([write], [Unmoved(scope, position)])
        try:
            receipt = await world.call(lambda log, a=append: log.append(a))  # type: ignore[misc]
        except ScopeMoved:
            continue
        check_receipt(world, append, receipt)
        found = world.disk.read_scope(scope, position, Bounds()).records
        if found[0].event_id != event.event_id:
            raise Violation("something came between a scope's position and the append on it")
        return


# Followers


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
                nursery.start_soon(_cancel_when, env.died, scope)
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

    def check(self, final: bool) -> bool:  # noqa: FBT001 - a switch of the oracle's own
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


async def live(chance: random.Random) -> str:
    """Live through one seed; give a digest of everything that happened."""
    world = World(chance, Disk(chance))
    followers = [Follower(world, where) for where in chance.sample(FILTERS, 3)]
    followers.append(Follower(world, chance.choice(FILTERS), beside=True))
    async with trio.open_nursery() as everything:
        everything.start_soon(run_server, world)
        everything.start_soon(trouble_the_disk, world)
        for follower in followers:
            everything.start_soon(follower.run)
        async with trio.open_nursery() as writers:
            for number in range(WRITERS):
                writers.start_soon(write_own_stream, world, number)
            for number in range(2 * CLAIMS):
                writers.start_soon(claim_a_key, world, number)
            for number in range(2):
                writers.start_soon(write_if_unmoved, world, number)
        world.crashes_left = 0
        while not world.calm.is_set():
            if world.server_env is not None:
                world.server_env.kill()
            await trio.sleep(0.1)
        await settle(world, followers)
        everything.cancel_scope.cancel()
    check_log(world)
    return digest(world, followers)


async def settle(world: World, followers: Sequence[Follower]) -> None:
    """Give the followers time to see everything; standing still is a violation."""
    for _ in range(60):
        await trio.sleep(0.5)
        if all([follower.check(final=False) for follower in followers]):
            return
    for follower in followers:
        follower.check(final=True)


def check_log(world: World) -> None:
    """Check the promises that can be read off the log alone."""
    records = world.disk.records
    ids = Counter(record.event_id for record in records)
    if world.acked - ids.keys():
        raise Violation("an acknowledged event is lost")
    if any(times > 1 for times in ids.values()):
        raise Violation("an event is in the log twice")
    versions: dict[str, int] = defaultdict(int)
    commit_time = 0
    for record in records:
        versions[record.stream] += 1
        if record.version != versions[record.stream]:
            raise Violation(f"a hole in {record.stream}")
        if record.commit_time < commit_time:
            raise Violation("commit times go backwards")
        commit_time = record.commit_time
        twin_of = cbor.decode(record.body).get("twin_of")
        if twin_of is not None and twin_of not in ids:
            raise Violation("half of an append is in the log")
    if any(versions[f"claim/{number}"] != 1 for number in range(CLAIMS)):
        raise Violation("a key without exactly one holder")


def digest(world: World, followers: Sequence[Follower]) -> str:
    """Sum up a seed: the log, and who saw what."""
    told = hashlib.blake2b(digest_size=8)
    for record in world.disk.records:
        told.update(repr(record).encode())
    for follower in followers:
        told.update(repr([r.position for r in follower.seen]).encode())
    told.update(repr((world.lives, trio.current_time())).encode())
    return told.hexdigest()

