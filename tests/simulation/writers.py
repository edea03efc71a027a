"""Clients that write, and check every answer they get."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from perdure.eventlog.append import Append, StreamWrite, Unmoved
from perdure.eventlog.errors import Conflict, ScopeMoved, StreamSealed, WrongExpectedVersion
from perdure.eventlog.store import Bounds
from tests.simulation.world import Violation, World, new_event

if TYPE_CHECKING:
    from perdure.eventlog.append import Receipt

CLAIMS = 3


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
    try:
        receipt = await world.call(lambda log: log.append(append))
    except Conflict as conflict:
        raise Violation(f"{stream} could not be ended by its only writer: {conflict}") from conflict
    check_receipt(world, append, receipt)
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
