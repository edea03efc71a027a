"""One seed from beginning to end, and the promises that can be read off the log."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import trio

from perdure.eventlog import cbor
from tests.simulation.disk import Disk
from tests.simulation.followers import FILTERS, Follower
from tests.simulation.world import Violation, World, run_server, trouble_the_disk
from tests.simulation.writers import CLAIMS, claim_a_key, write_if_unmoved, write_own_stream

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

WRITERS = 4


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
        if all([follower.check(final=False) for follower in followers]):  # noqa: C419 - check them all
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
